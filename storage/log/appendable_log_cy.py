"""The part of a partition's log that appends: the ends of the log, and the steps of an append.

This is ordinary Python that is also compiled: ``appendable_log_cy.pxd`` has the C types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    import cython
except ImportError:
    from ...protocol.records import cython_stand_in as cython

from ...protocol.records.batches import BatchView
from ..producers.producer_replay import marker_of
from ..recovery.recovery import MAX_RELATIVE_OFFSET
from .append_result import AppendOrigin, AppendResult

if not cython.compiled:
    from ...protocol.records.offsets_cy import assign_offsets
    from ...protocol.records.produced_cy import Produced, ProducedBatch

if TYPE_CHECKING:
    from ...protocol.records.control import EndTransactionMarker
    from ...protocol.records.validation import AppendRules
    from ..clock import Clock
    from ..disk.directory_health import DirectoryHealth
    from ..producers.producer_state import ProducerBatch, ProducerStates
    from .appendable_segment_cy import AppendableSegment
    from .flushing import Flusher
    from .leader_epochs import LeaderEpochs
    from .log_config import LogConfig
    from .log_faults import LogFaults
    from .log_segments import LogSegments
    from .rolling import RollingRules
    from .segment import Segment

CLIENT = AppendOrigin.CLIENT
NOT_READ = -(2**62)
"""No time: the clock is read."""
NO_TAIL = 2**63 - 1
"""The offset of the newest batch if several batches were appended at once."""
_MAX_RELATIVE_OFFSET = MAX_RELATIVE_OFFSET
_new_tuple = tuple.__new__


class AppendableLog:
    """A log without its readers; `PartitionLog` adds them and sets all fields."""

    __slots__ = (
        "_clock",
        "_config",
        "_epochs",
        "_faults",
        "_flusher",
        "_roll_after_ms",
        "_rolling",
        "_segment_bytes",
        "_segments",
        "_stamps_append_time",
        "_tail_offset",
        "_tail_position",
        "append_rules",
        "health",
        "high_watermark",
        "log_end_offset",
        "log_start_offset",
        "producers",
        "sole_replica",
    )

    _clock: Clock
    _config: LogConfig
    _epochs: LeaderEpochs
    _faults: LogFaults
    _flusher: Flusher
    _roll_after_ms: int
    _rolling: RollingRules
    _segment_bytes: int
    _segments: LogSegments
    _stamps_append_time: bool
    _tail_offset: int
    _tail_position: int
    append_rules: AppendRules | None
    health: DirectoryHealth
    high_watermark: int
    log_end_offset: int
    log_start_offset: int
    producers: ProducerStates
    sole_replica: bool

    def _end_transaction(self, batch: ProducerBatch, marker: EndTransactionMarker) -> None:
        raise NotImplementedError

    def _roll(self, base_offset: int) -> Segment:
        raise NotImplementedError

    def flush(self) -> None:
        """Flush the log; see `PartitionLog`."""
        raise NotImplementedError

    def append(
        self,
        produced: Produced,
        leader_epoch: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        receipt_ms: int = NOT_READ,
    ) -> AppendResult:
        """Assign offsets to the validated batches and write them to the page cache.

        ``receipt_ms`` is the present time, if the caller has read the clock.
        Raises BrokerError RECORD_LIST_TOO_LARGE, the errors of `producer_state`, KAFKA_STORAGE_ERROR if the disk fails.
        Then nothing is appended, unless the fsync of `flush.messages` failed; after that the log is offline.
        """
        if self.health.failure is not None:
            self.health.check()
        batches = produced.batches
        if not batches:
            return AppendResult(-1, -1, -1, self.log_start_offset, duplicate=False)
        if len(produced.data) > self._segment_bytes:
            self._rolling.check_fits_a_segment(len(produced.data))
        batch = batches[0]
        if batch.producer_id >= 0:
            result = self._append_of_producer(produced, batch, leader_epoch, origin, receipt_ms)
        else:
            result = self._write(produced, batch, leader_epoch, receipt_ms)
        if self._flusher.unflushed_count >= self._config.flush_messages:
            self.flush()
        return result

    def _append_of_producer(
        self, produced: Produced, batch: ProducedBatch, leader_epoch: int, origin: AppendOrigin, receipt_ms: int
    ) -> AppendResult:
        producers = self.producers
        marker = None
        if batch.is_control:
            marker = marker_of(BatchView(produced.data, batch.position, batch.size_bytes, batch.magic))
            if marker is not None:
                producers.check_marker(batch, marker)
        else:
            written = producers.check_data(batch, from_client=origin is CLIENT)
            if written is not None:
                return AppendResult(
                    written.first_offset, written.last_offset, written.timestamp, self.log_start_offset, duplicate=True
                )
        result = self._write(produced, batch, leader_epoch, receipt_ms)
        if marker is not None:
            self._end_transaction(batch, marker)
        elif not batch.is_control:
            producers.record_data(batch)
        return result

    def _write(self, produced: Produced, batch: ProducedBatch, leader_epoch: int, receipt_ms: int) -> AppendResult:
        base_offset = self.log_end_offset
        if receipt_ms == NOT_READ:
            receipt_ms = self._clock.now_ms()
        append_time_ms = receipt_ms if self._stamps_append_time else None
        last_offset = assign_offsets(
            produced, base_offset, leader_epoch=leader_epoch, log_append_time_ms=append_time_ms
        )
        self._store(produced.data, batch, leader_epoch, receipt_ms)
        # A named tuple's own constructor is a Python function.
        return _new_tuple(
            AppendResult,
            (base_offset, last_offset, -1 if append_time_ms is None else append_time_ms, self.log_start_offset, False),
        )

    def _has_room(self, active: AppendableSegment, size_bytes: int, last_offset: int, timestamp_ms: int) -> bool:
        """Return whether the active segment takes a batch for certain, which is the usual case."""
        first = active.first_timestamp
        return (
            size_bytes <= self._segment_bytes - active.size_bytes
            and last_offset - active.base_offset <= _MAX_RELATIVE_OFFSET
            and not active.is_suspect
            and first >= 0
            and timestamp_ms - first <= self._roll_after_ms
        )

    def _store(
        self, data: memoryview, batch: ProducedBatch, epoch: int, receipt_ms: int, is_exact: bool = False
    ) -> None:
        """Write a batch with assigned offsets, in a new segment if one is due."""
        active = self._segments.active
        last_offset = batch.last_offset
        try:
            timestamp_ms = receipt_ms if batch.magic == 0 else batch.max_timestamp
            if not self._has_room(active, len(data), last_offset, timestamp_ms) and self._rolling.asks_for_new(
                active, len(data), last_offset, timestamp_ms
            ):
                active = self._roll(batch.base_offset)
            if epoch != self._epochs.latest:
                self._epochs.assign(epoch, batch.base_offset)
            active.append(data, batch, receipt_ms, is_exact)
        except OSError as fault:
            self._faults.write_failed("append to", fault)
        if batch.magic == 2 or batch.codec:
            self._tail_offset, self._tail_position = batch.base_offset, active.size_bytes - len(data)
        else:
            self._tail_offset = NO_TAIL
        self.log_end_offset = end_offset = last_offset + 1
        if self.sole_replica:
            self.high_watermark = end_offset
        self._flusher.unflushed_count += batch.record_count
