"""The oldest version of each API that Apache Kafka 4 serves (KIP-896).

Kafka 4 disconnects a client that sends an older version. It serves APIs that are not in this table from version 0 on.
Facts: ``validVersions`` of the requests in Kafka 4.x and ``deprecatedVersions`` in 3.9.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from .apis import AnyApiKey, ApiKey, api_name


class Floor(NamedTuple):
    """The oldest version that Kafka 4 serves, and the first Kafka release whose clients send it."""

    version: int
    release: tuple[int, ...]


KAFKA_4_FLOORS: Mapping[AnyApiKey, Floor] = {
    ApiKey.PRODUCE: Floor(3, (0, 11, 0)),
    ApiKey.FETCH: Floor(4, (0, 11, 0)),
    ApiKey.LIST_OFFSETS: Floor(1, (0, 10, 1)),
    ApiKey.OFFSET_COMMIT: Floor(2, (0, 9, 0)),
    ApiKey.OFFSET_FETCH: Floor(1, (0, 8, 2)),
    ApiKey.CREATE_TOPICS: Floor(2, (0, 11, 0)),
    ApiKey.DELETE_TOPICS: Floor(1, (0, 11, 0)),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Floor(2, (2, 1, 0)),
    ApiKey.DESCRIBE_ACLS: Floor(1, (2, 0, 0)),
    ApiKey.CREATE_ACLS: Floor(1, (2, 0, 0)),
    ApiKey.DELETE_ACLS: Floor(1, (2, 0, 0)),
    ApiKey.DESCRIBE_CONFIGS: Floor(1, (1, 1, 0)),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Floor(1, (2, 0, 0)),
    ApiKey.DESCRIBE_LOG_DIRS: Floor(1, (2, 0, 0)),
    ApiKey.CREATE_DELEGATION_TOKEN: Floor(1, (2, 0, 0)),
    ApiKey.RENEW_DELEGATION_TOKEN: Floor(1, (2, 0, 0)),
    ApiKey.EXPIRE_DELEGATION_TOKEN: Floor(1, (2, 0, 0)),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: Floor(1, (2, 0, 0)),
}
KAFKA_4_0_0_FLOORS: Mapping[AnyApiKey, Floor] = {ApiKey.JOIN_GROUP: Floor(2, (0, 11, 0))}
"""Versions that only 4.0.0 refuses; 4.0.1 and 4.1.0 serve them again (KAFKA-19444)."""

ZOOKEEPER_SOFTWARE = "zookeeper"
"""The software name of clients of ZooKeeper's protocol in the list of clients; Kafka 4 has no ZooKeeper."""


def is_deprecated(key: AnyApiKey, version: int) -> bool:
    """Return whether Kafka 3.9 counts such a request under DeprecatedRequestsPerSec."""
    floor = KAFKA_4_FLOORS.get(key) or KAFKA_4_0_0_FLOORS.get(key)
    return floor is not None and version < floor.version


def refused_by_kafka_4(used: Iterable[tuple[AnyApiKey, int]]) -> list[tuple[AnyApiKey, int]]:
    """Return the (API, version) pairs for which Kafka 4 disconnects a client, in the given order."""
    return [(key, version) for key, version in used if key in KAFKA_4_FLOORS and version < KAFKA_4_FLOORS[key].version]


def verdict(used: Iterable[tuple[AnyApiKey, int]]) -> str:
    """Describe whether Kafka 4 serves a client that sends these versions, and if not, which release the client needs.

    That is the first release whose clients send versions that Kafka 4 serves.
    """
    pairs = sorted(used)
    refused = refused_by_kafka_4(pairs)
    by_4_0_0 = [pair for pair in pairs if pair[0] in KAFKA_4_0_0_FLOORS and is_deprecated(*pair)]
    if not refused and not by_4_0_0:
        return "Kafka 4 serves it"
    if not refused:
        return f"Kafka 4 serves it, but 4.0.0 refuses {_listed(by_4_0_0)}"
    needed = max(KAFKA_4_FLOORS[key].release for key, _ in refused)
    and_4_0_0 = f" (4.0.0 also {_listed(by_4_0_0)})" if by_4_0_0 else ""
    return (
        f"Kafka 4 refuses {_listed(refused)}{and_4_0_0}; "
        f"needs the protocol of Kafka {'.'.join(map(str, needed))} or newer: upgrade it, or lift a pinned version"
    )


def _listed(pairs: Iterable[tuple[AnyApiKey, int]]) -> str:
    versions: dict[AnyApiKey, list[str]] = {}
    for key, version in pairs:
        versions.setdefault(key, []).append(f"v{version}")
    return ", ".join(f"{api_name(key)} {'/'.join(seen)}" for key, seen in versions.items())
