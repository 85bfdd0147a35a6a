"""Validation of a topic's configuration, with Kafka's messages."""

import pytest

from gregor.broker.config import ConfigError
from gregor.broker.config.topic_keys import validate_topic_properties


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"no.such.key": "1"}, "Unknown topic config name: no.such.key"),
        ({"log.retention.ms": "1"}, "Unknown topic config name: log.retention.ms"),
        ({"retention.ms": "-2"}, "Invalid value -2 for configuration retention.ms: Value must be at least -1"),
        ({"segment.bytes": "13"}, "Invalid value 13 for configuration segment.bytes: Value must be at least 14"),
        ({"retention.ms": ""}, "Invalid value  for configuration retention.ms: Not a number of type LONG"),
        (
            {"remote.storage.enable": "true"},
            (
                "Tiered Storage functionality is disabled in the broker. "
                "Topic cannot be configured with remote log storage."
            ),
        ),
        (
            {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
            "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
        ),
        (
            {"leader.replication.throttled.replicas": "x"},
            (
                "Invalid value [x] for configuration leader.replication.throttled.replicas: "
                "leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the following "
                "format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."
            ),
        ),
    ],
)
def test_invalid_topic_configurations_are_refused_with_kafkas_message(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        validate_topic_properties(properties)
    assert str(refusal.value) == message


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"cleanup.policy": "compact, delete"},
        {"cleanup.policy": ""},
        {"preallocate": "TRUE"},
        {"retention.ms": " 5 "},
        {"flush.ms": "+5"},
        {"message.format.version": "0.9.0"},
        {"leader.replication.throttled.replicas": "0:1, 1:2"},
        {"follower.replication.throttled.replicas": "*"},
    ],
)
def test_valid_topic_configurations_are_accepted(properties: dict[str, str]) -> None:
    validate_topic_properties(properties)
