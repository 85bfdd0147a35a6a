"""One partition's log: an append-only sequence of batches whose offsets never change.

This file only composes the parts: segments (bytes), `producer_state` (idempotent producers, open transactions),
`leader_epochs` and `log_opening` (recovery after a crash). One thread appends, reads and calls all methods, except
those whose docstring allows a worker thread.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable

from ...protocol.records import v2
from ...protocol.records.control import EndTransactionMarker
from ...protocol.records.tag_runs import NO_TAG_RUNS, TagRuns
from ..clock import Clock
from ..disk import paths
from ..disk.directory_health import DirectoryHealth, WatchedFiles
from ..disk.files import Buffer, OsFiles
from ..disk.open_files import OpenFiles
from ..index.time_lookup import TimestampOffset, first_record_since, newest_record
from ..index.transaction_index import AbortedTransaction
from ..producers.producer_replay import LogExtent, load_producers, marker_of, record_transaction_end
from ..producers.producer_state import ProducerBatch, ProducerStates
from ..recovery.log_opening import OpeningFacts, open_log
from ..recovery.transaction_rebuilding import aborted_transactions, mend_transactions
from .append_result import AppendOrigin, AppendResult
from .appendable_log_cy import AppendableLog
from .flushing import Flusher
from .log_config import LogConfig
from .log_faults import LogFaults
from .log_reading import read_segment
from .log_segments import LogSegments
from .log_slice import LogSlice
from .numbered_batches import NumberedBatch, read_numbered
from .rolling import RollingRules
from .segment import Place, Segment, SegmentDamagedError

__all__ = ["AbortedTransaction", "AppendOrigin", "AppendResult", "LogSlice", "PartitionLog", "TimestampOffset"]

logger = logging.getLogger(__name__)

NEVER_MS = 2**63
NOT_CLOSED = -1
NO_TAIL = 2**63 - 1


class PartitionLog(AppendableLog):
    """The log of one partition.

    Invariant: log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset.
    """

    __slots__ = (
        "_closed_end_offset",
        "_identity",
        "_snapshots",
        "directory",
        "is_closed",
        "partition",
        "topic",
    )

    def __init__(self, directory: str, config: LogConfig, clock: Clock, pool: OpenFiles, facts: OpeningFacts) -> None:
        """Use `PartitionLog.open`. Raises ValueError if the directory's name is not `<topic>-<partition>`, OSError."""
        name = paths.parse_partition_directory(os.path.basename(directory))
        if name is None:
            raise ValueError(f"{directory} is not named <topic>-<partition>")
        self.topic, self.partition = name
        self.directory = directory
        self._clock = clock
        self.config = config
        opened = open_log(pool, directory, config, clock.now_ms(), facts)
        self._identity = opened.identity
        self.health = facts.health
        """The health of this log's log directory."""
        self._faults = LogFaults(directory, f"{self.topic}-{self.partition}", facts.health)
        self._segments = opened.segments
        self._epochs = opened.epochs
        self._snapshots = opened.snapshots
        self._flusher = Flusher(clock, self._epochs, opened.identity, facts.health)
        self.producers = ProducerStates()
        self.sole_replica = True
        """Whether the high watermark is the log end; otherwise `advance_high_watermark` sets it."""
        self.is_closed = False
        self.log_start_offset = opened.log_start_offset
        self.log_end_offset = self.high_watermark = end_offset = self._segments.active.next_offset
        self._flusher.recovery_point = end_offset if facts.is_clean else min(facts.recovery_point, end_offset)
        self._closed_end_offset = end_offset if facts.is_clean else NOT_CLOSED
        self._tail_offset = NO_TAIL
        self._tail_position = 0
        try:
            self._load_producers(had_none=not self._segments.active.had_producers)
        except OSError:
            self._segments.close()
            raise

    # --- opening and settings ---

    @classmethod
    def open(
        cls,
        directory: str,
        config: LogConfig,
        clock: Clock,
        *,
        pool: OpenFiles | None = None,
        topic_id: uuid.UUID | None = None,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        is_clean: bool = False,
        health: DirectoryHealth | None = None,
    ) -> PartitionLog:
        """Open the log in `directory`, or create an empty one there.

        `is_clean`: the log was closed by `close`, so the sizes in its indexes are valid. Otherwise everything from
        `recovery_point` on is checked. `topic_id` is written to partition.metadata; an id that the file already has
        takes precedence. The files of `pool` report a failed fsync to `health` (`directory_health.WatchedFiles`).
        Raises OSError.
        """
        own = health or DirectoryHealth(os.path.dirname(directory))
        pool = OpenFiles(WatchedFiles(OsFiles(), lambda _: own)) if pool is None else pool
        facts = OpeningFacts(topic_id, log_start_offset, recovery_point, is_clean, own)
        return cls(directory, config, clock, pool, facts)

    @property
    def config(self) -> LogConfig:
        """Return the settings; assign a new `LogConfig` to change them from the next append on."""
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._rolling = rolling = RollingRules(config, self._clock)
        self._segment_bytes, self._roll_after_ms = rolling.segment_bytes, rolling.roll_after_ms
        self.append_rules = None
        """The rules for appended records that follow from the settings, once `Partition` has derived them."""
        self._stamps_append_time = config.is_log_append_time

    def _load_producers(self, *, had_none: bool = False) -> None:
        extent = LogExtent(self.log_start_offset, self.high_watermark, self.log_end_offset)
        load_producers(self.producers, self._segments, self._snapshots, extent, had_none=had_none)

    # --- properties ---

    @property
    def topic_id(self) -> uuid.UUID | None:
        """Return the id of the topic that the records belong to, None if unknown."""
        return self._identity.topic_id

    def note_topic_id(self, topic_id: uuid.UUID) -> None:
        """Set the topic id of a log that has none. Raises OSError. Source: Kafka `UnifiedLog.assignTopicId`."""
        self._identity.note(topic_id)

    @property
    def last_stable_offset(self) -> int:
        """Return the end for `read_committed` readers: the first open transaction's offset, else the high watermark."""
        first_unstable = self.producers.first_unstable_offset
        return self.high_watermark if first_unstable is None else min(first_unstable, self.high_watermark)

    @property
    def leader_epoch(self) -> int:
        """Return the epoch of the newest batch, -1 if there was none."""
        return self._epochs.latest

    @property
    def size_bytes(self) -> int:
        """Return the size of all segments. Raises OSError."""
        return self._segments.size_bytes

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Return the segments in the order of their offsets; the last one is the active segment."""
        return tuple(self._segments.all)

    @property
    def segment_list(self) -> LogSegments:
        """Return the segments for compaction, which may replace them."""
        return self._segments

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the largest known epoch <= `epoch` and its end offset; (-1, -1) if unknown (KIP-101, KIP-279)."""
        return self._epochs.end_offset(epoch, self.log_end_offset)

    def epoch_for_offset(self, offset: int) -> int:
        """Return the leader epoch of the record at `offset`, -1 if unknown."""
        return self._epochs.epoch_for_offset(offset)

    # --- appending ---

    def _end_transaction(self, batch: ProducerBatch, marker: EndTransactionMarker) -> None:
        try:
            record_transaction_end(self.producers, self._segments.active, batch, marker)
        except OSError as fault:
            self._faults.write_failed("index a transaction of", fault)
        self.producers.high_watermark_advanced(self.high_watermark)

    def append_as_follower(
        self, records: Buffer, *, unversioned_epoch: int = -1, tags: TagRuns = NO_TAG_RUNS
    ) -> AppendResult:
        """Append batches that already have offsets; offsets, leader epochs and gaps stay as they are.

        All batches are checked before the first is written; an incomplete batch at the end is ignored. The high
        watermark advances only if this is the sole replica. `unversioned_epoch` is the leader epoch of v0 and v1
        messages; with -1 they get the epoch of the batch before. `tags` are those of the other log, by position in
        `records`; a batch without a receipt time gets the present time. Raises BrokerError: OFFSET_OUT_OF_RANGE if
        the first batch begins below the log's end, CORRUPT_MESSAGE for a batch that is damaged or out of order,
        KAFKA_STORAGE_ERROR. Source: Kafka `UnifiedLog.appendAsFollower`; only leaders check sequence numbers.
        """
        self.health.check()
        numbered = read_numbered(records, self.log_end_offset, self._epochs.latest, self._clock.now_ms(), tags)
        if not numbered:
            return AppendResult(-1, -1, -1, self.log_start_offset, duplicate=False)
        for item in numbered:
            self._store_numbered(item, unversioned_epoch)
        if self._flusher.unflushed_count >= self._config.flush_messages:
            self.flush()
        first, last = numbered[0].batch, numbered[-1].batch
        return AppendResult(first.base_offset, last.last_offset, -1, self.log_start_offset, duplicate=False)

    def _store_numbered(self, item: NumberedBatch, unversioned_epoch: int) -> None:
        active = self._segments.active
        if item.has_gap_before and not active.has_gaps:
            try:
                active.note_gaps()
            except OSError as fault:
                self._faults.write_failed("append to", fault)
        epoch = item.leader_epoch if item.batch.magic == v2.MAGIC else unversioned_epoch
        self._store(item.data, item.batch, max(epoch, self._epochs.latest), item.receipt_ms, item.receipt_is_known)
        view = item.view
        if view is None or not view.has_producer_id:
            return
        if not view.is_control:
            self.producers.record_data(view)
        elif (marker := marker_of(view)) is not None:
            self._end_transaction(view, marker)

    def roll(self) -> None:
        """Begin a new segment at the log's end, unless the active one is empty.

        Raises BrokerError KAFKA_STORAGE_ERROR.
        """
        try:
            self._roll(self.log_end_offset)
        except OSError as fault:
            self._faults.write_failed("roll", fault)

    def _roll(self, base_offset: int) -> Segment:
        if self._segments.active.base_offset == base_offset:
            return self._segments.active
        segment = self._segments.add(
            base_offset, index_interval_bytes=self._config.index_interval_bytes, now_ms=self._clock.now_ms()
        )
        self._tail_offset = NO_TAIL
        self._snapshots.write(base_offset, self.producers.snapshot())
        return segment

    # --- reading ---

    def read(
        self, offset: int, max_bytes: int, *, upper_bound_offset: int | None = None, at_least_one: bool = True
    ) -> LogSlice:
        """Return the slice of one segment from the batch that contains `offset` up to `upper_bound_offset` (exclusive).

        The slice has at most `max_bytes`, but with `at_least_one` at least the whole first batch. The bound defaults
        to the log's end. Raises BrokerError: OFFSET_OUT_OF_RANGE; CORRUPT_MESSAGE if the file is damaged at `offset`
        (bad bytes are never served); KAFKA_STORAGE_ERROR.
        """
        if self.health.failure is not None:
            self.health.check()
        end_offset = self.log_end_offset
        if offset > end_offset or offset < self.log_start_offset:
            self._faults.out_of_range(offset, self.log_start_offset, end_offset)
        bound = end_offset if upper_bound_offset is None else min(upper_bound_offset, end_offset)
        if offset >= bound:
            return LogSlice(None, 0, 0, start_offset=offset)
        known: Place | None = None
        if offset >= self._tail_offset:
            # A delayed fetch that the newest append completes needs no look-up.
            position = self._tail_position
            known = Place(position, self._segments.active.size_bytes - position, offset)
        try:
            return read_segment(self._segments, offset, max_bytes, bound, at_least_one, known, self._stamps_append_time)
        except SegmentDamagedError as fault:
            self._faults.damaged(fault, offset)
        except OSError as fault:
            self._faults.storage_failed("read", fault)

    # --- look-ups ---

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """Find the first record whose timestamp is `timestamp_ms` or later, None if there is none.

        The timestamp of a v0 message is its receipt time. Raises BrokerError CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR.
        """
        with self._faults.as_broker_errors():
            return first_record_since(self._segments, timestamp_ms, self.log_start_offset)

    def max_timestamp_offset(self) -> TimestampOffset | None:
        """Find the first record that has the largest timestamp (ListOffsets -3, KIP-734).

        Raises as `offset_for_timestamp`.
        """
        with self._faults.as_broker_errors():
            return newest_record(self._segments, self.log_start_offset)

    def aborted_transactions(self, first_offset: int, last_offset: int) -> list[AbortedTransaction]:
        """Return aborted transactions with records in [`first_offset`, `last_offset`). Raises BrokerError as `read`."""
        with self._faults.as_broker_errors():
            return aborted_transactions(self._segments, self._snapshots, first_offset, last_offset)

    # --- start, end and high watermark ---

    def advance_high_watermark(self, offset: int) -> None:
        """Raise the high watermark to `offset`, at most to the log's end; a lower offset changes nothing."""
        if offset > self.high_watermark:
            self.high_watermark = min(offset, self.log_end_offset)
            self.producers.high_watermark_advanced(self.high_watermark)

    def advance_log_start(self, offset: int) -> int:
        """Delete records below `offset` (DeleteRecords; -1: the high watermark); return the log start offset.

        Raises BrokerError OFFSET_OUT_OF_RANGE beyond the high watermark.
        """
        if offset == -1:
            offset = self.high_watermark
        if not 0 <= offset <= self.high_watermark:
            self._faults.beyond_high_watermark(offset, self.high_watermark)
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self._drop_head()
        return self.log_start_offset

    def _drop_head(self) -> None:
        due_ms = self._clock.now_ms() + self._config.file_delete_delay_ms
        try:
            if self._segments.drop_head(self.log_start_offset, due_ms=due_ms):
                self._snapshots.remove_outside(self._segments.base_offset, self.log_end_offset)
            self._epochs.truncate_from_start(self.log_start_offset)
        except OSError as fault:
            self._faults.storage_failed("delete from", fault)

    def truncate_to(self, offset: int) -> None:
        """Remove the batch that contains `offset` and all after it. Raises BrokerError KAFKA_STORAGE_ERROR."""
        if self._segments.base_offset < offset < self.log_end_offset:
            with self._faults.as_broker_errors():
                mend_transactions(self._segments, self._snapshots)
                self._ended_at(self._segments.truncate_to(offset))
                self._snapshots.remove_outside(0, self.log_end_offset)
                if not self.producers.cut_back(self.log_end_offset):
                    self._load_producers()
        elif offset < self.log_end_offset:
            self.truncate_fully(offset)

    def truncate_fully(self, offset: int) -> None:
        """Remove all records; the next record gets `offset`. Raises BrokerError KAFKA_STORAGE_ERROR."""
        with self._faults.as_broker_errors():
            self._segments.restart(
                offset, index_interval_bytes=self._config.index_interval_bytes, now_ms=self._clock.now_ms()
            )
            self.log_start_offset = offset
            self._ended_at(offset)
            self._epochs.clear()
            self._snapshots.remove_outside(0, -1)
            self.producers.clear()

    def _ended_at(self, offset: int) -> None:
        self.log_end_offset = offset
        self._closed_end_offset = NOT_CLOSED
        self.high_watermark = offset if self.sole_replica else min(self.high_watermark, offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self._flusher.truncated_to(offset)
        self._tail_offset = NO_TAIL
        self._epochs.truncate_from_end(offset)

    # --- flush and close ---

    @property
    def recovery_point(self) -> int:
        """Return the offset below which all records are on the disk."""
        return self._flusher.recovery_point

    def flush(self) -> None:
        """Flush all records and the log's files to the disk. Raises BrokerError KAFKA_STORAGE_ERROR."""
        with self._faults.as_broker_errors("flush"):
            self._flusher.start(self._segments, self.log_end_offset)()

    def due_flush(self, now_ms: int) -> Callable[[], None] | None:
        """Return the flush that `flush.ms` or a finished segment requires now, for a worker thread.

        This method and the flush raise OSError.
        """
        return self._flusher.due(self._segments, self.log_end_offset, self._config, now_ms)

    def close(self) -> None:
        """Flush, write the summary of each index, close the files. Raises OSError, BrokerError as `flush`."""
        self.health.check()
        if self.is_closed or self.log_end_offset == self._closed_end_offset:
            # Nothing was written since the last close, so everything is on the disk already.
            self.abandon()
            return
        self.is_closed = True
        if self.log_end_offset > self.recovery_point:
            self.flush()
        known = self.producers.snapshot()
        if known:
            self._snapshots.write_last(self.log_end_offset, known, [segment.base_offset for segment in self.segments])
        self._segments.active.finish(has_producers=bool(known))
        self._segments.close()
        if remove := self.due_removals(NEVER_MS):
            remove()

    def due_removals(self, now_ms: int) -> Callable[[], None] | None:
        """Return a function that deletes files after their delay, for a worker thread, or None; it raises OSError."""
        return self._segments.due_removals(now_ms)

    def abandon(self) -> None:
        """Close the files without writing: the directory will be moved or removed."""
        self.is_closed = True
        self._segments.close()
