"""The rules for the expiry of committed offsets.

Source: Kafka `GroupMetadata.removeExpiredOffsets` (KIP-186, KIP-211, KIP-496).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ....storage.disk.paths import TopicPartition
from .classic_group import ClassicGroup, GroupState
from .committed_offsets import CommittedOffset, GroupOffsets

MINUTE_MS = 60_000


def expired_offsets(
    group: ClassicGroup, offsets: GroupOffsets, *, now_ms: int, retention_ms: int
) -> list[TopicPartition]:
    """Return the partitions whose committed offset has expired in a classic group.

    - A group without members keeps its offsets for `retention_ms` from the time when the last member left.
    - A stable group of consumers keeps those of subscribed topics, others for `retention_ms` from their commit.
    - A group that only commits offsets keeps each for `retention_ms` from its commit.
    - Any other group keeps everything. A client's own retention time (OffsetCommit v2-4) overrides `retention_ms`.
    """
    if group.protocol_type is None:
        return list(_older_than(offsets, now_ms, retention_ms, lambda offset: offset.commit_timestamp_ms))
    if group.state is GroupState.EMPTY:
        empty_since = group.state_timestamp_ms
        return list(
            _older_than(
                offsets,
                now_ms,
                retention_ms,
                lambda offset: offset.commit_timestamp_ms if empty_since is None else empty_since,
            )
        )
    if group.state is GroupState.STABLE and group.subscribed_topics is not None:
        unread = _older_than(offsets, now_ms, retention_ms, lambda offset: offset.commit_timestamp_ms)
        return [partition for partition in unread if not group.is_subscribed_to(partition.topic)]
    return []


def unread_offsets(
    is_subscribed_to: Callable[[str], bool], offsets: GroupOffsets, *, now_ms: int, retention_ms: int
) -> list[TopicPartition]:
    """Return the expired partitions of a group of the consumer protocol (KIP-848), whose subscriptions are known."""
    old = _older_than(offsets, now_ms, retention_ms, lambda offset: offset.commit_timestamp_ms)
    return [partition for partition in old if not is_subscribed_to(partition.topic)]


def _older_than(
    offsets: GroupOffsets, now_ms: int, retention_ms: int, kept_since: Callable[[CommittedOffset], int]
) -> Iterator[TopicPartition]:
    for partition, offset in offsets.committed.items():
        if offset.expire_timestamp_ms is None:
            is_expired = now_ms - kept_since(offset) >= retention_ms
        else:
            is_expired = now_ms >= offset.expire_timestamp_ms
        if is_expired and not offsets.is_unstable(partition):
            yield partition
