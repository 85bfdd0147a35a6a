"""Fault rules from a file, active from the start (`gregor.fault.file`)::

    rules:
      slow-produce: {api: Produce, topic: orders, delay: 20ms}
      lost-acknowledgements: api=Produce disconnect at=answer first=3

A rule is a mapping of its words or their text. YAML needs PyYAML (`pip install 'gregor-broker[faults]'`); JSON, which
is YAML too, needs nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .rule_syntax import OFF, FaultRuleError, check_rule_name, format_rule, parse_rule, rule_of_words, words_of_mapping

LARGEST_FILE_BYTES = 1 << 20
SECTION = "rules"


def read_rule_file(path: str) -> dict[str, str]:
    """Return the rules in a file as text, by name. Raises FaultRuleError, one line that says what to change."""
    try:
        data = Path(path).read_bytes()
        text = data.decode()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise FaultRuleError(f"cannot read {path}: {reason}") from None
    if len(data) > LARGEST_FILE_BYTES:
        raise FaultRuleError(f"{path} is longer than {LARGEST_FILE_BYTES} bytes")
    document = _parsed(path, text)
    rules = document.get(SECTION) if isinstance(document, Mapping) else None
    if not isinstance(rules, Mapping) or set(document) != {SECTION}:
        raise FaultRuleError(f"{path}: expected one mapping named {SECTION}, from names to rules")
    texts = {}
    for name, rule in rules.items():
        try:
            check_rule_name(str(name))
            texts[str(name)] = _rule_text(rule)
        except FaultRuleError as error:
            raise FaultRuleError(f"{path}: rule {name}: {error}") from None
    return texts


def _rule_text(rule: object) -> str:
    if isinstance(rule, Mapping):
        return format_rule(rule_of_words(words_of_mapping(rule)))
    if not isinstance(rule, str):
        # YAML reads the bare word `off` as false.
        if rule is False:
            return OFF
        raise FaultRuleError("expected text or a mapping of words")
    parse_rule(rule)
    return rule


def _parsed(path: str, text: str) -> Any:
    if text.lstrip().startswith("{") or path.endswith(".json"):
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            if path.endswith(".json"):
                raise FaultRuleError(f"{path} is not JSON: {error}") from None
    try:
        import yaml
    except ImportError:
        raise FaultRuleError(
            f"reading {path} needs PyYAML: pip install 'gregor-broker[faults]', or write the file in JSON"
        ) from None
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise FaultRuleError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
