"""Committed offsets of groups, with the pending offsets of open transactions kept separately.

Source: Kafka `GroupMetadata` (offsets, pending transactional offsets), `OffsetAndMetadata`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ....protocol.topic_partition import TopicPartition

NO_LEADER_EPOCH = -1


class CommittedOffset(NamedTuple):
    """A committed position of a group: the offset of the next record to read."""

    offset: int
    leader_epoch: int
    """Leader epoch of the last record read, -1 if the client did not send it."""
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None
    """Set by clients that sent a retention time (OffsetCommit v2-4)."""
    log_offset: int
    """Offset of its record in `__consumer_offsets`: of two commits, the one with the larger offset is valid."""

    def logged_at(self, log_offset: int) -> CommittedOffset:
        """Return the position with the offset of its record."""
        return CommittedOffset(
            self.offset,
            self.leader_epoch,
            self.metadata,
            self.commit_timestamp_ms,
            self.expire_timestamp_ms,
            log_offset,
        )


class GroupOffsets:
    """A record of all offsets that one group has committed."""

    __slots__ = ("committed", "pending", "unreplicated")

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, CommittedOffset] = {}
        """Offsets whose records are replicated, which any client may fetch."""
        self.unreplicated: dict[TopicPartition, CommittedOffset] = {}
        """The newest commit of each partition whose record is not replicated yet."""
        self.pending: dict[int, dict[TopicPartition, CommittedOffset]] = {}
        """By producer id: offsets that become valid when the producer's transaction is committed."""

    def __bool__(self) -> bool:
        return bool(self.committed or self.unreplicated or self.pending)

    @property
    def partitions(self) -> set[TopicPartition]:
        """The partitions with a committed, unreplicated or pending offset."""
        pending = (partition for offsets in self.pending.values() for partition in offsets)
        return {*self.committed, *self.unreplicated, *pending}

    def is_unstable(self, partition: TopicPartition) -> bool:
        """Return whether an open transaction or an unreplicated commit may change this position (KIP-447)."""
        return partition in self.unreplicated or any(partition in offsets for offsets in self.pending.values())

    def advance(self, partition: TopicPartition, offset: CommittedOffset) -> None:
        """Set the committed offset, unless a later commit is already set."""
        present = self.committed.get(partition)
        if present is None or present.log_offset < offset.log_offset:
            self.committed[partition] = offset


class CommittedOffsets:
    """A store of the committed offsets of all groups."""

    def __init__(self) -> None:
        self._groups: dict[str, GroupOffsets] = {}
        self._groups_of_producer: dict[int, set[str]] = {}
        """Groups for which a producer has pending commits."""

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._groups))

    def of(self, group_id: str) -> GroupOffsets:
        """Return a group's offsets, not to be changed; empty if the group has none."""
        return self._groups.get(group_id) or GroupOffsets()

    def put(self, group_id: str, partition: TopicPartition, offset: CommittedOffset) -> None:
        """Set a committed offset of a group."""
        self._groups.setdefault(group_id, GroupOffsets()).committed[partition] = offset

    def put_replicated(self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Set committed offsets whose records are replicated already."""
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = GroupOffsets()
        for partition, offset in offsets.items():
            if group.unreplicated:
                group.unreplicated.pop(partition, None)
            group.advance(partition, offset)

    def put_unreplicated(self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Add offsets whose records are not replicated yet; see `replicated`."""
        self._groups.setdefault(group_id, GroupOffsets()).unreplicated.update(offsets)

    def replicated(self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Make offsets committed that were added as unreplicated, unless they were removed meanwhile."""
        group = self._groups.get(group_id)
        if group is None:
            return
        for partition, offset in offsets.items():
            newest = group.unreplicated.get(partition)
            if newest is None or newest.log_offset < offset.log_offset:
                continue
            if newest.log_offset == offset.log_offset:
                del group.unreplicated[partition]
            group.advance(partition, offset)

    def put_pending(self, group_id: str, producer_id: int, partition: TopicPartition, offset: CommittedOffset) -> None:
        """Add an offset that becomes committed when the producer's transaction is committed."""
        group = self._groups.setdefault(group_id, GroupOffsets())
        group.pending.setdefault(producer_id, {})[partition] = offset
        self._groups_of_producer.setdefault(producer_id, set()).add(group_id)

    def end_transaction(self, group_id: str, producer_id: int, *, is_commit: bool) -> None:
        """Commit or discard the pending offsets of a producer's transaction in a group."""
        group = self._groups.get(group_id)
        if group is None:
            return
        self._settle(producer_id, group_id)
        for partition, offset in group.pending.pop(producer_id, {}).items():
            if is_commit:
                group.advance(partition, offset)
        self._forget_if_empty(group_id)

    def groups_in_transaction(self, producer_id: int) -> list[str]:
        """Return the groups for which the producer's open transaction has pending offsets."""
        return sorted(self._groups_of_producer.get(producer_id, ()))

    def remove(self, group_id: str, partition: TopicPartition) -> None:
        """Remove the offsets of a partition, including those of open transactions."""
        group = self._groups.get(group_id)
        if group is None:
            return
        group.committed.pop(partition, None)
        group.unreplicated.pop(partition, None)
        for producer_id, pending in list(group.pending.items()):
            if pending.pop(partition, None) is not None and not pending:
                del group.pending[producer_id]
                self._settle(producer_id, group_id)
        self._forget_if_empty(group_id)

    def remove_group(self, group_id: str) -> None:
        """Remove all offsets of a group."""
        group = self._groups.pop(group_id, None)
        for producer_id in () if group is None else group.pending:
            self._settle(producer_id, group_id)

    def _settle(self, producer_id: int, group_id: str) -> None:
        groups = self._groups_of_producer.get(producer_id, set())
        groups.discard(group_id)
        if not groups:
            self._groups_of_producer.pop(producer_id, None)

    def _forget_if_empty(self, group_id: str) -> None:
        if not self._groups[group_id]:
            del self._groups[group_id]
