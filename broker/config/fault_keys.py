"""Keys that hold fault rules, ``gregor.fault.rule.NAME``, in any number (`broker/faults/`)."""

from __future__ import annotations

from collections.abc import Mapping

from .keys import ConfigError, ConfigType, ConfigValue, Key, Update

FAULT_PREFIX = "gregor.fault."
RULE_PREFIX = "gregor.fault.rule."
ENABLE = "gregor.fault.injection.enable"
SENTENCE = "Fault rule that this broker applies, such as `api=Produce topic=orders delay=20ms`."


class InvalidFaultError(ConfigError):
    """An error for an invalid fault rule or an unknown fault key."""


class FaultRuleKey(Key):
    """A key whose text must be a fault rule."""

    def parse(self, text: str) -> ConfigValue:
        """Return the text itself. Raises InvalidFaultError for an invalid rule."""
        # Brokers without rules do not load their grammar.
        from ..faults.rule_syntax import FaultRuleError, check_rule_name, parse_rule

        try:
            check_rule_name(self.name.removeprefix(RULE_PREFIX))
            parse_rule(text)
        except FaultRuleError as error:
            raise InvalidFaultError(f"Invalid value {text} for configuration {self.name}: {error}") from None
        return text


def fault_rule_key(name: str) -> Key | None:
    """Return the key of that name if it holds a fault rule, else None."""
    if not name.startswith(RULE_PREFIX):
        return None
    return FaultRuleKey(name, ConfigType.STRING, None, SENTENCE, update=Update.CLUSTER_WIDE)


def check_faults(properties: Mapping[str, str]) -> None:
    """Raise InvalidFaultError for an invalid fault rule among a broker's settings."""
    for name, text in properties.items():
        key = fault_rule_key(name)
        if key is not None:
            key.parse(text)
