"""Committing, fetching and forgetting offsets.

Who may commit for a group is decided by its protocol (`ClassicProtocol.check_commit`); here it is settled.
Source: Kafka `GroupCoordinator.doCommitOffsets`, `GroupMetadataManager`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import NamedTuple

from ....protocol.errors import BrokerError, ErrorCode
from ....storage.clock import Clock
from ....storage.disk.paths import TopicPartition
from ...config import BrokerConfig
from ..internal_log.coordinator_log import TransactionalProducer
from .committed_offsets import NO_LEADER_EPOCH, CommittedOffset, CommittedOffsets
from .group_log import GroupLog

NO_OFFSET = -1
NOT_SET = -1


class OffsetToCommit(NamedTuple):
    """One position as a client gives it: -1 where it says nothing, in milliseconds where it is a time."""

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str | None = None
    commit_timestamp_ms: int = NOT_SET
    retention_ms: int = NOT_SET


class FetchedOffset(NamedTuple):
    """A position as a client is told it: offset -1 if there is none."""

    offset: int = NO_OFFSET
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    error: ErrorCode = ErrorCode.NONE


class OffsetService:
    """The committed offsets of all groups, and their log."""

    def __init__(self, config: BrokerConfig, clock: Clock, log: GroupLog) -> None:
        self._config = config
        self._clock = clock
        self._log = log
        self.offsets = CommittedOffsets()

    def commit(
        self,
        group_id: str,
        positions: Mapping[TopicPartition, OffsetToCommit],
        producer: TransactionalProducer | None = None,
    ) -> dict[TopicPartition, ErrorCode]:
        """Commit, or with `producer` once its transaction commits; the error of each position."""
        errors = dict.fromkeys(positions, ErrorCode.NONE)
        accepted: dict[TopicPartition, CommittedOffset] = {}
        for partition, position in positions.items():
            if len(position.metadata or "") > self._config.offset_metadata_max_bytes:
                errors[partition] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                accepted[partition] = self._committed(position)
        if not accepted:
            return errors
        try:
            log_offset = self._log.store_offsets(group_id, accepted, producer)
        except BrokerError as error:
            return errors | dict.fromkeys(accepted, error.code)
        written = {partition: committed._replace(log_offset=log_offset) for partition, committed in accepted.items()}
        if producer is None:
            self.offsets.put_unreplicated(group_id, written)
            last_offset = log_offset + len(written) - 1
            self._log.when_replicated(group_id, last_offset, partial(self.offsets.replicated, group_id, written))
        else:
            for partition, committed in written.items():
                self.offsets.put_pending(group_id, producer.producer_id, partition, committed)
        return errors

    def _committed(self, position: OffsetToCommit) -> CommittedOffset:
        now_ms = self._clock.now_ms()
        is_own_time = position.commit_timestamp_ms != NOT_SET
        return CommittedOffset(
            offset=position.offset,
            leader_epoch=max(position.leader_epoch, NO_LEADER_EPOCH),
            metadata=position.metadata or "",
            commit_timestamp_ms=position.commit_timestamp_ms if is_own_time else now_ms,
            expire_timestamp_ms=None if position.retention_ms == NOT_SET else now_ms + position.retention_ms,
            log_offset=NO_OFFSET,
        )

    def fetch(
        self, group_id: str, partitions: Iterable[TopicPartition] | None, *, require_stable: bool
    ) -> dict[TopicPartition, FetchedOffset]:
        """The newest committed offsets that are replicated, of all partitions if None are named.

        With `require_stable`, what these or an open transaction may change is UNSTABLE_OFFSET_COMMIT instead (KIP-447).
        """
        group = self.offsets.of(group_id)
        fetched: dict[TopicPartition, FetchedOffset] = {}
        for partition in list(group.committed) if partitions is None else partitions:
            committed = group.committed.get(partition)
            if require_stable and group.is_unstable(partition):
                fetched[partition] = FetchedOffset(error=ErrorCode.UNSTABLE_OFFSET_COMMIT)
            elif committed is None:
                fetched[partition] = FetchedOffset()
            else:
                fetched[partition] = FetchedOffset(committed.offset, committed.leader_epoch, committed.metadata)
        return fetched

    def delete(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Forget committed offsets, those that exist. Raises BrokerError if that cannot be written."""
        known = self.offsets.of(group_id).partitions
        doomed = [partition for partition in partitions if partition in known]
        self._log.forget(group_id, doomed)
        for partition in doomed:
            self.offsets.remove(group_id, partition)

    def delete_topic(self, topic: str) -> list[str]:
        """Forget all groups' offsets in a deleted topic; returns the groups that had some."""
        concerned = []
        for group_id in self.offsets:
            doomed = [partition for partition in self.offsets.of(group_id).partitions if partition.topic == topic]
            if doomed:
                self.delete(group_id, doomed)
                concerned.append(group_id)
        return concerned

    def end_transaction(self, producer_id: int, group_ids: Iterable[str], *, is_commit: bool) -> None:
        """A marker of this producer's transaction was written: its commits for these groups count, or not."""
        for group_id in group_ids:
            self.offsets.end_transaction(group_id, producer_id, is_commit=is_commit)
