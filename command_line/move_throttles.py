"""The throttles of a reassignment (KIP-73): set with `--throttle`, cleared once it is complete or cancelled.

The brokers that a partition moves from are throttled as leaders, the brokers that it moves to as followers. Source:
Kafka `ReassignPartitionsCommand` (`calculateProposedMoveMap`, `modifyInterBrokerThrottle`, `clearAllThrottles`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from ..client.admin import Admin, AlterOperation, ResourceType
from ..protocol.messages.list_partition_reassignments import OngoingPartitionReassignment
from ..protocol.topic_partition import AnyTopicPartition

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
LOG_DIRECTORY_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


class Move(NamedTuple):
    """The brokers that a partition moves from, and those that it moves to."""

    sources: frozenset[int]
    targets: frozenset[int]


def moves_of(
    plan: Mapping[AnyTopicPartition, Sequence[int]],
    present: Mapping[AnyTopicPartition, Sequence[int]],
    ongoing: Mapping[AnyTopicPartition, OngoingPartitionReassignment],
) -> dict[AnyTopicPartition, Move]:
    """Return the moves of a plan together with those in progress, which have the same throttle from now on."""
    moves = {
        place: Move(frozenset(found.replicas) - frozenset(found.adding_replicas), frozenset(found.adding_replicas))
        for place, found in ongoing.items()
    }
    for place, replicas in plan.items():
        sources = moves[place].sources if place in moves else frozenset(present[place])
        moves[place] = Move(sources, frozenset(replicas) - sources)
    return moves


async def throttle(admin: Admin, moves: Mapping[AnyTopicPartition, Move], bytes_per_second: int) -> None:
    """Limit the copying of these moves on each broker that takes part. Raises BrokerError, ClientError."""
    by_topic: dict[str, tuple[list[str], list[str]]] = {}
    for (topic, partition), move in sorted(moves.items()):
        leaders, followers = by_topic.setdefault(topic, ([], []))
        leaders += [f"{partition}:{broker}" for broker in sorted(move.sources)]
        followers += [f"{partition}:{broker}" for broker in sorted(move.targets)]
    for topic, (leaders, followers) in by_topic.items():
        pairs = ((LEADERS, leaders), (FOLLOWERS, followers))
        changes = [(AlterOperation.SET, key, ",".join(replicas)) for key, replicas in pairs if replicas]
        await admin.alter_configs(ResourceType.TOPIC, topic, changes)
    brokers = frozenset[int]().union(*(move.sources | move.targets for move in moves.values()))
    rates = [(AlterOperation.SET, key, str(bytes_per_second)) for key in RATES]
    for broker in sorted(brokers):
        await admin.alter_configs(ResourceType.BROKER, str(broker), rates)


async def clear_throttles(admin: Admin, brokers: Collection[int], topics: Collection[str]) -> None:
    """Remove all throttles from these brokers and topics. Raises BrokerError, ClientError."""
    for broker in sorted(brokers):
        changes = [(AlterOperation.DELETE, key, None) for key in (*RATES, LOG_DIRECTORY_RATE)]
        await admin.alter_configs(ResourceType.BROKER, str(broker), changes)
    for topic in sorted(topics):
        changes = [(AlterOperation.DELETE, key, None) for key in (LEADERS, FOLLOWERS)]
        await admin.alter_configs(ResourceType.TOPIC, topic, changes)
