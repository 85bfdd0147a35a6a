"""The rules for the expiry of committed offsets.

Source: Kafka `GroupMetadata.removeExpiredOffsets` (KIP-186, KIP-211, KIP-496).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ....protocol.topic_partition import TopicPartition
from .classic_group import ClassicGroup, GroupState
from .committed_offsets import CommittedOffset, GroupOffsets
from .group_map import Group

MINUTE_MS = 60_000


def expired_offsets(group: Group, offsets: GroupOffsets, *, now_ms: int, retention_ms: int) -> list[TopicPartition]:
    """Return the partitions whose committed offset has expired.

    - A classic group without members keeps its offsets for `retention_ms` from the time when the last member left.
    - A stable group of consumers keeps those of subscribed topics, others for `retention_ms` from their commit; so does
      each group of the consumer protocol (KIP-848).
    - A group that only commits offsets keeps each for `retention_ms` from its commit.
    - Any other group keeps everything. A client's own retention time (OffsetCommit v2-4) overrides `retention_ms`.
    """
    if isinstance(group, ClassicGroup) and group.protocol_type is not None:
        if group.is_empty:
            since_ms = group.state_timestamp_ms
            return list(
                _older_than(
                    offsets,
                    now_ms,
                    retention_ms,
                    lambda offset: offset.commit_timestamp_ms if since_ms is None else since_ms,
                )
            )
        if group.state is not GroupState.STABLE or group.subscribed_topics is None:
            return []
    old = _older_than(offsets, now_ms, retention_ms, lambda offset: offset.commit_timestamp_ms)
    if isinstance(group, ClassicGroup) and group.protocol_type is None:
        return list(old)
    return [partition for partition in old if not group.is_subscribed_to(partition.topic)]


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
