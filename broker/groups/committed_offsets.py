"""How far groups have read: committed offsets as values, those of open transactions kept apart.

Source: Kafka `GroupMetadata` (offsets, pending transactional offsets), `OffsetAndMetadata`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

NO_LEADER_EPOCH = -1


class TopicPartition(NamedTuple):
    """A partition by name."""

    topic: str
    partition: int


class CommittedOffset(NamedTuple):
    """A position that a group has committed: the offset that it will read next."""

    offset: int
    leader_epoch: int
    """Leader epoch of the last record read, -1 if the client did not say."""
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None
    """Set by clients that gave a retention time of their own (OffsetCommit v2-4)."""
    log_offset: int
    """Where in `__consumer_offsets` it is: of two commits, the later one counts."""


class GroupOffsets:
    """All that one group has committed."""

    __slots__ = ("committed", "pending")

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, CommittedOffset] = {}
        self.pending: dict[int, dict[TopicPartition, CommittedOffset]] = {}
        """By producer id: commits that count once the producer's transaction is committed."""

    def __bool__(self) -> bool:
        return bool(self.committed or self.pending)

    def is_unstable(self, partition: TopicPartition) -> bool:
        """Whether an open transaction may change this position (KIP-447)."""
        return any(partition in offsets for offsets in self.pending.values())


class CommittedOffsets:
    """The committed offsets of all groups."""

    def __init__(self) -> None:
        self._groups: dict[str, GroupOffsets] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._groups))

    def of(self, group_id: str) -> GroupOffsets:
        """A group's offsets, not to be changed; empty if it has none."""
        return self._groups.get(group_id) or GroupOffsets()

    def put(self, group_id: str, partition: TopicPartition, offset: CommittedOffset) -> None:
        """The group has committed."""
        self._groups.setdefault(group_id, GroupOffsets()).committed[partition] = offset

    def put_pending(self, group_id: str, producer_id: int, partition: TopicPartition, offset: CommittedOffset) -> None:
        """The group will have committed, if the producer's transaction is."""
        group = self._groups.setdefault(group_id, GroupOffsets())
        group.pending.setdefault(producer_id, {})[partition] = offset

    def end_transaction(self, group_id: str, producer_id: int, *, is_commit: bool) -> None:
        """The producer's transaction has ended: what it has committed for the group counts, or is forgotten."""
        group = self._groups.get(group_id)
        if group is None:
            return
        for partition, offset in group.pending.pop(producer_id, {}).items():
            present = group.committed.get(partition)
            if is_commit and (present is None or present.log_offset < offset.log_offset):
                group.committed[partition] = offset
        self._forget_if_empty(group_id)

    def groups_in_transaction(self, producer_id: int) -> list[str]:
        """Groups for which the producer's open transaction has commits."""
        return [group_id for group_id, group in self._groups.items() if producer_id in group.pending]

    def remove(self, group_id: str, partition: TopicPartition) -> bool:
        """Forget a committed offset; False if there was none."""
        group = self._groups.get(group_id)
        if group is None:
            return False
        removed = group.committed.pop(partition, None)
        self._forget_if_empty(group_id)
        return removed is not None

    def remove_group(self, group_id: str) -> None:
        """Forget all offsets of a group."""
        self._groups.pop(group_id, None)

    def _forget_if_empty(self, group_id: str) -> None:
        if not self._groups[group_id]:
            del self._groups[group_id]
