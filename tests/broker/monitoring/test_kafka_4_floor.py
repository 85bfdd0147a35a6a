"""Versions that Kafka 4 refuses, compared with Kafka's message definitions, and their descriptions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gregor.protocol.apis import ApiKey, api_name
from gregor.protocol.kafka_4_floor import (
    KAFKA_4_0_0_FLOORS,
    KAFKA_4_FLOORS,
    is_deprecated,
    refused_by_kafka_4,
    verdict,
)

SHARED = Path(__file__).parents[3] / ".." / "shared" / "protocol"


def definitions(name: str) -> dict[str, Any]:
    file = SHARED / name
    if not file.exists():
        pytest.skip(f"no {file}: the tables of Kafka's messages are not here")
    apis: dict[str, Any] = json.loads(file.read_text())["apis"]
    return apis


def test_floors_are_the_oldest_versions_of_kafka_4() -> None:
    of_kafka_4 = definitions("messages-4.x.json")
    oldest = {name: int(api["request"]["validVersions"].partition("-")[0]) for name, api in of_kafka_4.items()}
    # Old clients send no requests of brokers or share groups, of which Kafka 3.9 has other versions only.
    raised = {name for name, version in oldest.items() if version and not name.startswith(("Share", "WriteTxn"))}
    assert {api_name(key) for key in KAFKA_4_FLOORS} == raised
    assert all(floor.version == oldest[api_name(key)] for key, floor in KAFKA_4_FLOORS.items())


def test_deprecated_is_what_kafka_3_9_calls_deprecated() -> None:
    deprecated = {
        (ApiKey(api["api_key"]), version)
        for api in definitions("messages-3.9.json").values()
        if (marked := api["request"].get("deprecatedVersions"))
        for version in range(int(marked.rpartition("-")[2]) + 1)
    }
    found = {(key, version) for key in ApiKey for version in range(20) if is_deprecated(key, version)}
    assert found == deprecated


def test_a_current_client_is_served() -> None:
    used = [(ApiKey.PRODUCE, 3), (ApiKey.FETCH, 4), (ApiKey.METADATA, 0), (ApiKey.API_VERSIONS, 0)]
    assert refused_by_kafka_4(used) == []
    assert verdict(used) == "Kafka 4 serves it"


def test_the_verdict_on_an_old_client_names_refused_versions_and_the_needed_release() -> None:
    used = [(ApiKey.FETCH, 1), (ApiKey.METADATA, 0), (ApiKey.PRODUCE, 0), (ApiKey.PRODUCE, 1)]
    assert verdict(used) == (
        "Kafka 4 refuses Produce v0/v1, Fetch v1; needs the protocol of Kafka 0.11.0 or newer: "
        "upgrade it, or lift a pinned version"
    )


def test_the_newest_of_the_needed_releases_counts() -> None:
    assert "Kafka 2.1.0 or newer" in verdict([(ApiKey.OFFSET_COMMIT, 0), (ApiKey.OFFSET_FOR_LEADER_EPOCH, 1)])


def test_join_group_was_refused_by_4_0_0_alone() -> None:
    assert ApiKey.JOIN_GROUP in KAFKA_4_0_0_FLOORS
    assert verdict([(ApiKey.JOIN_GROUP, 1)]) == "Kafka 4 serves it, but 4.0.0 refuses JoinGroup v1"
    assert "(4.0.0 also JoinGroup v0)" in verdict([(ApiKey.JOIN_GROUP, 0), (ApiKey.OFFSET_COMMIT, 1)])
