"""Commit, fetch and deletion of offsets.

The group's protocol has already checked whether the client may commit (`ClassicProtocol.check_commit`).
Source: Kafka `GroupCoordinator.doCommitOffsets`, `GroupMetadataManager`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import partial
from typing import NamedTuple

from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.topic_partition import TopicPartition
from ....storage.clock import Clock
from ...config import BrokerConfig
from ..internal_log.coordinator_log import TransactionalProducer
from .committed_offsets import NO_LEADER_EPOCH, CommittedOffset, CommittedOffsets
from .group_log import GroupLog

logger = logging.getLogger(__name__)

NO_OFFSET = -1
NOT_SET = -1


class OffsetToCommit(NamedTuple):
    """A position as a client sends it; -1 for a missing number or time."""

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str | None = None
    commit_timestamp_ms: int = NOT_SET
    retention_ms: int = NOT_SET


class FetchedOffset(NamedTuple):
    """A position as a client receives it; offset -1 if none is committed."""

    offset: int = NO_OFFSET
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    error: ErrorCode = ErrorCode.NONE


class OffsetService:
    """A service for the committed offsets of all groups, and their log."""

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
        """Commit offsets, with `producer` as part of its transaction; return the error of each position."""
        errors = dict.fromkeys(positions, ErrorCode.NONE)
        accepted: dict[TopicPartition, CommittedOffset] = {}
        now_ms, longest_metadata = self._clock.now_ms(), self._config.offset_metadata_max_bytes
        for partition, position in positions.items():
            if position.metadata and len(position.metadata) > longest_metadata:
                errors[partition] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                accepted[partition] = _committed(position, now_ms)
        if not accepted:
            return errors
        try:
            log_offset = self._log.store_offsets(group_id, accepted, producer)
        except BrokerError as error:
            return errors | dict.fromkeys(accepted, error.code)
        written = {partition: committed.logged_at(log_offset) for partition, committed in accepted.items()}
        if producer is None:
            last_offset = log_offset + len(written) - 1
            if self._log.is_replicated(group_id, last_offset):
                self.offsets.put_replicated(group_id, written)
            else:
                self.offsets.put_unreplicated(group_id, written)
                self._log.when_replicated(group_id, last_offset, partial(self.offsets.replicated, group_id, written))
        else:
            for partition, committed in written.items():
                self.offsets.put_pending(group_id, producer.producer_id, partition, committed)
        return errors

    def fetch(
        self, group_id: str, partitions: Iterable[TopicPartition] | None, *, require_stable: bool
    ) -> dict[TopicPartition, FetchedOffset]:
        """Return the newest replicated committed offsets, of all partitions if `partitions` is None.

        With `require_stable`, a position that an unreplicated commit or an open transaction may change has the error
        UNSTABLE_OFFSET_COMMIT (KIP-447).
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
        """Delete the committed offsets of partitions. Raises BrokerError if the tombstones cannot be written."""
        known = self.offsets.of(group_id).partitions
        doomed = [partition for partition in partitions if partition in known]
        self._log.forget(group_id, doomed)
        for partition in doomed:
            self.offsets.remove(group_id, partition)

    def delete_topic(self, topic: str) -> list[str]:
        """Delete all groups' offsets of a deleted topic; return the groups that had some.

        If their tombstones cannot be written, only this broker forgets the offsets until its next start, as in Kafka
        (`GroupMetadataManager.cleanupGroupMetadata`): the topic is deleted in any case.
        """
        concerned = []
        for group_id in self.offsets:
            doomed = [partition for partition in self.offsets.of(group_id).partitions if partition.topic == topic]
            if not doomed:
                continue
            try:
                self._log.forget(group_id, doomed)
            except BrokerError as error:
                logger.warning("group %s: no tombstones for offsets of %s: %s", group_id, topic, error.code.name)
            for partition in doomed:
                self.offsets.remove(group_id, partition)
            concerned.append(group_id)
        return concerned

    def end_transaction(self, producer_id: int, group_ids: Iterable[str], *, is_commit: bool) -> None:
        """Commit or discard the offsets of a producer's transaction for these groups, after its marker was written."""
        for group_id in group_ids:
            self.offsets.end_transaction(group_id, producer_id, is_commit=is_commit)


def _committed(position: OffsetToCommit, now_ms: int) -> CommittedOffset:
    own_time_ms, retention_ms = position.commit_timestamp_ms, position.retention_ms
    return CommittedOffset(
        position.offset,
        max(position.leader_epoch, NO_LEADER_EPOCH),
        position.metadata or "",
        now_ms if own_time_ms == NOT_SET else own_time_ms,
        None if retention_ms == NOT_SET else now_ms + retention_ms,
        NO_OFFSET,
    )
