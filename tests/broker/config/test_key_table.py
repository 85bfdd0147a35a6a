"""The table of keys against Kafka 3.9's own list of them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gregor.broker.config.dynamic_only import DYNAMIC_ONLY_KEYS
from gregor.broker.config.ignored_keys import ignored_keys
from gregor.broker.config.keys import Key
from gregor.broker.config.table import SUPPORTED_KEYS
from gregor.broker.config.topic_keys import TOPIC_KEYS

FACTS = Path(__file__).resolve().parents[4] / "shared" / "protocol" / "configs-3.9.json"

OWN_DEFAULTS = {
    "listeners": "a broker without configuration is reached from its own machine only",
    "node.id": "no file is needed",
    "log.dir": "data stays where the broker was started",
    "group.coordinator.rebalance.protocols": "the new protocol needs no switch",
}


@pytest.fixture(scope="module")
def facts() -> dict[str, dict[str, Any]]:
    if not FACTS.is_file():
        pytest.skip("no ../shared beside this checkout: Kafka's list of keys is needed here")
    loaded: dict[str, dict[str, Any]] = json.loads(FACTS.read_text())
    return loaded


def all_broker_keys() -> dict[str, Key]:
    return {**ignored_keys(), **SUPPORTED_KEYS}


def text_of(default: object) -> str | None:
    if isinstance(default, bool):
        return "true" if default else "false"
    return None if default is None else str(default)


def differences(keys: dict[str, Key], facts: dict[str, Any]) -> list[str]:
    found = []
    for name, fact in facts.items():
        key = keys[name]
        if key.type.name != fact["type"]:
            found.append(f"{name}: type {key.type.name}, Kafka has {fact['type']}")
        text = text_of(fact["default"])
        expected = None if text is None else key.render(key.parse(text)) if name not in OWN_DEFAULTS else text
        if name not in OWN_DEFAULTS and key.render(key.default) != expected:
            found.append(f"{name}: default {key.render(key.default)}, Kafka has {expected}")
        if key.internal != bool(fact.get("internal")):
            found.append(f"{name}: internal {key.internal}")
    return found


KEYS_OF_THE_AUTHORIZER = {"super.users", "allow.everyone.if.no.acl.found"}
"""Keys that the StandardAuthorizer reads by itself: Kafka's own table does not have them."""


def test_every_broker_key_of_kafka_is_known(facts: dict[str, dict[str, Any]]) -> None:
    known = {name for name in all_broker_keys() if not name.startswith("gregor.")}
    assert set(facts["broker"]) | KEYS_OF_THE_AUTHORIZER == known


def test_dynamic_only_keys_are_not_in_kafkas_table_of_broker_keys(facts: dict[str, dict[str, Any]]) -> None:
    assert not set(facts["broker"]) & set(DYNAMIC_ONLY_KEYS)


def test_types_and_defaults_of_broker_keys_are_kafkas(facts: dict[str, dict[str, Any]]) -> None:
    assert differences(all_broker_keys(), facts["broker"]) == []


def test_topic_keys_are_kafkas(facts: dict[str, dict[str, Any]]) -> None:
    topic_keys = {name: row.key for name, row in TOPIC_KEYS.items() if not name.startswith("gregor.")}
    assert set(facts["topic"]) == set(topic_keys)
    assert differences(topic_keys, facts["topic"]) == []


def test_ranges_of_broker_and_topic_keys_are_kafkas(facts: dict[str, dict[str, Any]]) -> None:
    topic_keys = {name: row.key for name, row in TOPIC_KEYS.items()}
    for keys, known in ((SUPPORTED_KEYS, facts["broker"]), (topic_keys, facts["topic"])):
        for name, fact in known.items():
            match = re.fullmatch(r"\[(-?[\d.]+?),\.\.\.(?:,(-?[\d.]+))?\](?: or .*)?", fact.get("valid", ""))
            if match and name in keys:
                assert keys[name].least == float(match[1]), name
                assert keys[name].most == (float(match[2]) if match[2] else None), name


@pytest.mark.parametrize("key", SUPPORTED_KEYS.values(), ids=lambda key: key.name)
def test_each_key_has_a_description_and_a_valid_default(key: Key) -> None:
    assert key.sentence.endswith(".")
    assert key.sentence[0].isupper()
    text = key.render(key.default)
    if text is not None:
        assert key.parse(text) == key.default


def test_no_key_is_both_ignored_and_supported() -> None:
    assert not set(ignored_keys()) & set(SUPPORTED_KEYS)
