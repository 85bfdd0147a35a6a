"""How far groups have read: committed offsets as values, those of open transactions kept apart.

Source: Kafka `GroupMetadata` (offsets, pending transactional offsets), `OffsetAndMetadata`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ....storage.disk.paths import TopicPartition

NO_LEADER_EPOCH = -1


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

    __slots__ = ("committed", "pending", "unreplicated")

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, CommittedOffset] = {}
        """What everybody may be told: it cannot be lost any more."""
        self.unreplicated: dict[TopicPartition, CommittedOffset] = {}
        """Newer commits, the newest of each partition, which count once the followers of their log have them."""
        self.pending: dict[int, dict[TopicPartition, CommittedOffset]] = {}
        """By producer id: commits that count once the producer's transaction is committed."""

    def __bool__(self) -> bool:
        return bool(self.committed or self.unreplicated or self.pending)

    @property
    def partitions(self) -> set[TopicPartition]:
        """Every partition for which something is or will be committed."""
        pending = (partition for offsets in self.pending.values() for partition in offsets)
        return {*self.committed, *self.unreplicated, *pending}

    def is_unstable(self, partition: TopicPartition) -> bool:
        """Whether an open transaction, or a commit on its way to the followers, may change this position (KIP-447)."""
        return partition in self.unreplicated or any(partition in offsets for offsets in self.pending.values())

    def advance(self, partition: TopicPartition, offset: CommittedOffset) -> None:
        """This commit counts, unless a later one does already."""
        present = self.committed.get(partition)
        if present is None or present.log_offset < offset.log_offset:
            self.committed[partition] = offset


class CommittedOffsets:
    """The committed offsets of all groups."""

    def __init__(self) -> None:
        self._groups: dict[str, GroupOffsets] = {}
        self._groups_of_producer: dict[int, set[str]] = {}
        """Groups for which a producer has commits pending."""

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._groups))

    def of(self, group_id: str) -> GroupOffsets:
        """A group's offsets, not to be changed; empty if it has none."""
        return self._groups.get(group_id) or GroupOffsets()

    def put(self, group_id: str, partition: TopicPartition, offset: CommittedOffset) -> None:
        """The group has committed."""
        self._groups.setdefault(group_id, GroupOffsets()).committed[partition] = offset

    def put_unreplicated(self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """The group will have committed once the followers have what was written; see `replicated`."""
        self._groups.setdefault(group_id, GroupOffsets()).unreplicated.update(offsets)

    def replicated(self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """What was put as unreplicated counts now, unless it was removed meanwhile."""
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
        """The group will have committed, if the producer's transaction is."""
        group = self._groups.setdefault(group_id, GroupOffsets())
        group.pending.setdefault(producer_id, {})[partition] = offset
        self._groups_of_producer.setdefault(producer_id, set()).add(group_id)

    def end_transaction(self, group_id: str, producer_id: int, *, is_commit: bool) -> None:
        """The producer's transaction has ended: what it has committed for the group counts, or is forgotten."""
        group = self._groups.get(group_id)
        if group is None:
            return
        self._settle(producer_id, group_id)
        for partition, offset in group.pending.pop(producer_id, {}).items():
            if is_commit:
                group.advance(partition, offset)
        self._forget_if_empty(group_id)

    def groups_in_transaction(self, producer_id: int) -> list[str]:
        """Groups for which the producer's open transaction has commits."""
        return sorted(self._groups_of_producer.get(producer_id, ()))

    def remove(self, group_id: str, partition: TopicPartition) -> None:
        """Forget what was committed for a partition, by open transactions as well."""
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
        """Forget all offsets of a group."""
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
