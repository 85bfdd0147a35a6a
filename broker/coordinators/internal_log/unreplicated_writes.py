"""The delay of an answer until the records that its request wrote, or relies on, are replicated and cannot be lost.

Coordinators append to logs that have followers and continue at once. An answer that depends on a partition of an
internal topic waits until all records that the partition has then are replicated, as in Kafka's `CoordinatorRuntime`: a
request that writes nothing may still reveal records of other requests.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ....protocol.errors import BrokerError, ErrorCode
from ...replicas.partition import Partition
from ...server.pending import Pending, all_completed
from .coordinator_log import InternalTopics, partition_for

TOLD_AS = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
"""The client's errors for records that could not be replicated (Kafka `GroupMetadataManager`)."""


class InternalKey(NamedTuple):
    """A group or transactional id, and the internal topic that holds its state."""

    topic: str
    key: str


class NotReplicatedError(BrokerError):
    """An error for a request whose records were written but not replicated; the client must retry."""


def partitions_led_here(keys: Iterable[InternalKey], topics: InternalTopics) -> list[Partition]:
    """Return the partitions that hold the state of ``keys`` and are led by this broker; create no topic."""
    led: dict[int, Partition] = {}
    for topic, key in keys:
        count = topics.internal_topic_partitions(topic)
        partition = topics.internal_partition(topic, partition_for(key, count)) if count else None
        if partition is not None and partition.is_leader:
            led[id(partition)] = partition
    return list(led.values())


def replication_of(partitions: Iterable[Partition], timeout_s: float) -> Pending[None] | None:
    """Return a pending None, completed when the present records of ``partitions`` are replicated; None if they are.

    The pending one fails with NotReplicatedError: NOT_COORDINATOR or COORDINATOR_NOT_AVAILABLE.
    """
    waiting = [
        partition.replicated(partition.log.log_end_offset - 1, timeout_s)
        for partition in partitions
        if not partition.is_replicated(partition.log.log_end_offset - 1)
    ]
    return all_completed(waiting).map(_check) if waiting else None


def _check(codes: Iterable[ErrorCode]) -> None:
    for code in codes:
        if code is not ErrorCode.NONE:
            raise NotReplicatedError(TOLD_AS.get(code, code))
