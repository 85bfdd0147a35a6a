"""Ignored keys: Kafka's keys that Gregor accepts with one info line, without effect.

`ignored_keys.json` holds the facts of Apache Kafka 3.9.1: for each key its ``type``, its ``default`` as the text of a
properties file (absent if Kafka has none), ``update`` if the key may change at run time (`Update`), and ``internal``
for Kafka's internal keys, which DescribeConfigs leaves out.
"""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from .keys import ConfigType, Key, Update

SENTENCE: Final = "Accepted for Kafka's sake; Gregor does not need it."

_TABLE: Final = Path(__file__).with_suffix(".json")


@cache
def ignored_keys() -> dict[str, Key]:
    """Return the ignored keys by name. The table is read on first use: most brokers need none of these keys."""
    table: dict[str, dict[str, Any]] = json.loads(_TABLE.read_text(encoding="utf-8"))
    return {name: _key(name, facts) for name, facts in table.items()}


def _key(name: str, facts: dict[str, Any]) -> Key:
    update = Update(facts.get("update", Update.READ_ONLY))
    is_internal = facts.get("internal", False)
    key = Key(name, ConfigType[facts["type"]], None, SENTENCE, update=update, internal=is_internal)
    return replace(key, default=key.parse(facts["default"])) if "default" in facts else key
