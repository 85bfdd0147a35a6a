"""A partition that is copied from its leader: the next fetch, and the handling of its answer.

A follower trusts its leader. A fetch contains the leader epoch of the follower's last record; if that epoch ends
earlier in the leader's log, the answer says where, and the follower first truncates its log there (KIP-595). The rest
is a prefix of the leader's log, byte for byte.

Source: Kafka `AbstractFetcherThread`, `ReplicaFetcherThread`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.messages.fetch import EpochEndOffset, FetchPartition, PartitionData
from ....protocol.records import v2
from ....protocol.records.batches import Buffer, iter_batches
from ....protocol.records.tag_runs import TagRuns
from ....storage.log.leader_epochs import UNDEFINED_EPOCH, UNDEFINED_OFFSET
from ....storage.log.partition_log import PartitionLog
from ..partition import Partition

logger = logging.getLogger(__name__)


class Outcome(Enum):
    """A next step after the answer for one partition."""

    GO_ON = auto()
    """Fetch again from the present log end."""
    WAIT = auto()
    """The leader has newer or older metadata than this broker, or the disk has failed: retry later."""
    OUT_OF_RANGE = auto()
    """Ask the leader for its log start and end, then call `Followed.continue_within` with them."""


@dataclass(slots=True, eq=False)
class Followed:
    """A partition in one leader epoch, with the state of its fetching task."""

    partition: Partition
    leader_epoch: int
    epoch_starts: list[tuple[int, int]] = field(default_factory=list)
    """(start offset, leader epoch) of the leader, ascending; requested only if records have no epochs."""
    wait_until: float = 0.0
    """The time of the next fetch, in the event loop's clock."""
    lag: int = 0
    """The leader's high watermark minus this log's end at the last answer (Kafka `FetcherLagMetrics`)."""
    is_caught_up: bool = False
    """Whether the copy reached the leader's high watermark at the last answer (Kafka `PartitionFetchState.lag`)."""
    failures: int = 0
    """The number of successive answers with the outcome WAIT."""

    @property
    def is_current(self) -> bool:
        """Whether the partition is still followed in this epoch."""
        return not self.partition.is_leader and self.partition.leader_epoch == self.leader_epoch

    @property
    def log(self) -> PartitionLog:
        """The log into which records are copied."""
        return self.partition.log

    def begin(self) -> None:
        """Truncate a tail without leader epochs, which could not be compared with the leader's log.

        Raises BrokerError (Kafka `truncateToHighWatermark`).
        """
        log = self.log
        if log.leader_epoch == UNDEFINED_EPOCH and log.log_end_offset > log.high_watermark:
            log.truncate_to(log.high_watermark)

    def wanted(self, max_bytes: int) -> FetchPartition:
        """Return the partition's entry in a fetch request."""
        log = self.log
        return FetchPartition(
            partition=self.partition.index,
            current_leader_epoch=self.leader_epoch,
            fetch_offset=log.log_end_offset,
            last_fetched_epoch=log.leader_epoch,
            log_start_offset=log.log_start_offset,
            partition_max_bytes=max_bytes,
        )

    # --- answers ---

    def take(self, data: PartitionData, asked_offset: int) -> Outcome:
        """Apply the leader's answer to a fetch from ``asked_offset`` on; an outdated answer changes nothing.

        Records of formats v0 and v1 need `epoch_starts`: see `lacks_epochs`.
        """
        log = self.log
        if not self.is_current or log.log_end_offset != asked_offset:
            return Outcome.GO_ON
        if data.error_code:
            return self._outcome_of(ErrorCode(data.error_code))
        try:
            if data.diverging_epoch.epoch >= 0 or data.diverging_epoch.end_offset >= 0:
                self._truncate(truncation_offset(log, data.diverging_epoch))
                return Outcome.GO_ON
            records = data.records
            assert records is None or isinstance(records, bytes | bytearray | memoryview)
            if records:
                self._append(records, TagRuns.decode(data.gregor_tag_runs or b""))
            self.move_ends(data.high_watermark, data.log_start_offset)
        except BrokerError as fault:
            logger.error("copying %s-%d at offset %d: %s", log.topic, log.partition, asked_offset, fault)
            return Outcome.WAIT
        return Outcome.GO_ON

    def _outcome_of(self, code: ErrorCode) -> Outcome:
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            return Outcome.OUT_OF_RANGE
        logger.debug("%s-%d: the leader answers %s", self.log.topic, self.log.partition, code.name)
        return Outcome.WAIT

    def _append(self, records: Buffer, tags: TagRuns) -> None:
        log = self.log
        if log.log_end_offset == log.log_start_offset:
            first = next(iter_batches(records), None)
            if first is not None and first.base_offset < log.log_end_offset:
                # The leader's log starts inside this batch. The whole batch is copied; the log start follows the
                # leader's.
                log.truncate_fully(first.base_offset)
        if not self.epoch_starts:
            log.append_as_follower(records, tags=tags)
            return
        for begin, end, epoch in self._by_epoch(memoryview(records)):
            log.append_as_follower(memoryview(records)[begin:end], unversioned_epoch=epoch, tags=tags.since(begin))

    def _by_epoch(self, records: memoryview) -> Iterator[tuple[int, int, int]]:
        """Yield begin, end and epoch of each run of records of one epoch, for formats without epochs."""
        begin, epoch = 0, UNDEFINED_EPOCH
        for batch in iter_batches(records):
            own = self._epoch_of(batch.last_offset)
            if own != epoch and batch.position > begin:
                yield begin, batch.position, epoch
                begin = batch.position
            epoch = own
        yield begin, len(records), epoch

    def _epoch_of(self, offset: int) -> int:
        return next((epoch for start, epoch in reversed(self.epoch_starts) if start <= offset), UNDEFINED_EPOCH)

    def move_ends(self, high_watermark: int, log_start_offset: int = UNDEFINED_OFFSET) -> None:
        """Advance the high watermark and the log start offset to the leader's, as far as the copy reaches."""
        log = self.log
        self.lag = max(0, high_watermark - log.log_end_offset)
        self.is_caught_up = self.lag == 0
        before = log.high_watermark
        log.advance_high_watermark(high_watermark)
        if log.log_start_offset < log_start_offset <= log.high_watermark:
            log.advance_log_start(log_start_offset)
        if log.high_watermark != before:
            self.partition.wake_waiters()

    def _truncate(self, offset: int) -> None:
        log = self.log
        logger.info("%s-%d: truncated from offset %d to %d", log.topic, log.partition, log.log_end_offset, offset)
        if offset < log.high_watermark:
            logger.warning(
                "%s-%d: offset %d is below the high watermark %d",
                log.topic,
                log.partition,
                offset,
                log.high_watermark,
            )
        log.truncate_to(offset)
        self.partition.wake_waiters()

    def continue_within(self, leader_start_offset: int, leader_end_offset: int) -> None:
        """Move the copy's end into the range of the leader, which refused a fetch at that offset. Raises BrokerError.

        A leader whose log ends earlier was elected although it lacked records (unclean election); one whose log starts
        later has deleted records that were not copied (Kafka `fetchOffsetAndTruncate`).
        """
        log = self.log
        if leader_end_offset < log.log_end_offset:
            self._truncate(leader_end_offset)
        elif leader_start_offset > log.log_end_offset:
            log.truncate_fully(leader_start_offset)
            self.partition.wake_waiters()

    # --- leader epochs of records without epochs ---

    def lacks_epochs(self, records: object) -> bool:
        """Return whether ``records`` have batches of v0 or v1 while `epoch_starts` is not known."""
        if self.epoch_starts or not isinstance(records, bytes | bytearray | memoryview):
            return False
        return any(batch.magic < v2.MAGIC for batch in iter_batches(records))


def truncation_offset(log: PartitionLog, diverging: EpochEndOffset) -> int:
    """Return the offset to which ``log`` is truncated for a leader whose answer has a diverging epoch.

    If the log never had that epoch, the result is the log's own end of the next lower one: the next fetch compares
    that. Source: Kafka `AbstractFetcherThread.getOffsetTruncationState`; KIP-101, KIP-279.
    """
    if diverging.epoch == UNDEFINED_EPOCH or diverging.end_offset == UNDEFINED_OFFSET:
        return log.high_watermark
    own_epoch, own_end = log.end_offset_for_epoch(diverging.epoch)
    if own_end == UNDEFINED_OFFSET:
        return min(diverging.end_offset, log.log_end_offset)
    if own_epoch == diverging.epoch:
        return min(diverging.end_offset, own_end, log.log_end_offset)
    return min(own_end, log.log_end_offset)
