"""Broker keys that Kafka has only as dynamic configurations, outside of its table of keys (`DynamicConfig`)."""

from __future__ import annotations

from typing import Final

from .keys import ConfigType, Key, Update

UNLIMITED_BYTES_PER_SECOND: Final = 9223372036854775807
LEADER_THROTTLED_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_THROTTLED_RATE: Final = "follower.replication.throttled.rate"


def _rate(name: str, sentence: str) -> Key:
    return Key(name, ConfigType.LONG, UNLIMITED_BYTES_PER_SECOND, sentence, least=0, update=Update.CLUSTER_WIDE)


DYNAMIC_ONLY_KEYS: Final = {
    key.name: key
    for key in (
        _rate(LEADER_THROTTLED_RATE, "Bytes a second that this broker sends to throttled followers (KIP-73)."),
        _rate(FOLLOWER_THROTTLED_RATE, "Bytes a second that this broker copies to its throttled replicas (KIP-73)."),
    )
}
