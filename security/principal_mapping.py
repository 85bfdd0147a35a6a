"""``ssl.principal.mapping.rules``: a client's name from its certificate's subject (Kafka ``SslPrincipalMapper``)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

import re2

from .errors import SecuritySettingError

DEFAULT = "DEFAULT"
_RULE = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)|(.*?))\s*(?:[,\n]\s*|$)")
_JAVA_GROUP = re.compile(r"\$(\d)")


@dataclass(frozen=True, slots=True)
class MappingRule:
    """A rule ``RULE:pattern/replacement/[LU]``, or DEFAULT without a pattern."""

    pattern: str | None = None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        """Return the short name for a distinguished name, None if the rule does not match all of it."""
        if self.pattern is None:
            return name
        # Patterns are the operator's, names are the client's: RE2 takes a time linear in the name's length.
        found = re2.fullmatch(self.pattern, name)
        if found is None:
            return None
        mapped = _JAVA_GROUP.sub(lambda group: found.group(int(group[1])) or "", self.replacement)
        return mapped.lower() if self.case == "L" else mapped.upper() if self.case == "U" else mapped


@lru_cache(maxsize=32)
def parse_mapping_rules(text: str) -> tuple[MappingRule, ...]:
    """Return the rules in the value of ``ssl.principal.mapping.rules``. Raises SecuritySettingError."""
    rules: list[MappingRule] = []
    rest = text.strip()
    while rest:
        found = _RULE.match(rest)
        if found is None or found[5] is not None:
            raise SecuritySettingError(f"ssl.principal.mapping.rules: Invalid rule: `{rest}`")
        rules.append(MappingRule() if found[1] else _checked(MappingRule(found[2], found[3], found[4])))
        rest = rest[found.end() :]
    return tuple(rules) or (MappingRule(),)


def _quietly() -> re2.Options:
    """Return options with which RE2 does not write errors to standard error by itself."""
    options = re2.Options()
    options.log_errors = False
    return options


def _checked(rule: MappingRule) -> MappingRule:
    try:
        groups = re2.compile(rule.pattern, _quietly()).groups
    except re2.error:
        raise SecuritySettingError(
            f"ssl.principal.mapping.rules: {rule.pattern} is not a regular expression in RE2's syntax"
        ) from None
    if any(int(number) > groups for number in _JAVA_GROUP.findall(rule.replacement)):
        raise SecuritySettingError(
            f"ssl.principal.mapping.rules: {rule.replacement} names a group that {rule.pattern} lacks"
        )
    return rule


def mapped_name(subject: str, rules: tuple[MappingRule, ...]) -> str:
    """Return the name of a client by the first rule that matches its certificate's subject.

    Raises SecuritySettingError if no rule matches, as Kafka's NoMatchingRule.
    """
    for rule in rules:
        mapped = rule.apply(subject)
        if mapped is not None:
            return mapped
    raise SecuritySettingError(f"No rules apply to {subject}, rules {len(rules)}")
