"""One compaction of one log: the last record of each key stays (Kafka `Cleaner`).

`plan` and `commit` belong in the thread that appends; `run` is the long part, for a worker thread: it reads segments
that nobody writes any more and writes new ones beside them, one group of neighbours at a time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator
from functools import partial
from typing import NamedTuple

from ...protocol.records import v0
from ...protocol.records.batches import BatchView, iter_records
from ..clock import Clock
from ..disk import paths
from ..disk.files import Files
from ..disk.io_throttle import IoThrottle
from ..disk.open_files import OpenFiles
from ..index.batch_tags import BatchTags, tags_inside
from ..index.offset_index import NO_RECEIPT
from ..log.log_config import LogConfig
from ..log.partition_log import PartitionLog
from ..log.segment import Segment
from ..recovery.recovery import MAX_RELATIVE_OFFSET, ScanRules
from .compaction_filter import BatchFilter, CleanedBatch, FilterRules
from .compaction_map import LOAD_FACTOR, OffsetMap
from .compaction_transactions import PassingTransactions
from .segment_swap import Replacement, commit_swap, end_swap, put_in_place

logger = logging.getLogger(__name__)

DEDUPE_BUFFER_BYTES = 128 * 1024 * 1024
"""Kafka's default of `log.cleaner.dedupe.buffer.size`."""

FILES_OPEN = 8
"""Descriptors that a compaction keeps to itself."""


class CompactionLimits(NamedTuple):
    """What one compaction may take: bytes for its map of keys, how full that may get, and a rate for its files."""

    buffer_bytes: int = DEDUPE_BUFFER_BYTES
    load_factor: float = LOAD_FACTOR
    throttle: IoThrottle = IoThrottle()


class CompactionStats(NamedTuple):
    """What one compaction has cost (Kafka `CleanerStats`)."""

    read_bytes: int = 0
    written_bytes: int = 0
    elapsed_s: float = 0.0
    buffer_utilization: float = 0.0


NO_LIMITS = CompactionLimits()
NO_STATS = CompactionStats()


class CleanedGroup(NamedTuple):
    """Segments that become one: what they were, and where the new one begins."""

    replaced: list[Segment]
    base_offset: int


class Compaction:
    """A compaction that was planned; `run`, then `commit` or `discard`."""

    def __init__(
        self,
        log: PartitionLog,
        files: Files,
        clock: Clock,
        segments: list[Segment],
        *,
        first_dirty_offset: int,
        limits: CompactionLimits = NO_LIMITS,
    ) -> None:
        """Plan to clean `segments`, the log's first ones, of which those from `first_dirty_offset` on never were.

        Use `plan`.
        """
        self.log = log
        self._files = files
        self._clock = clock
        self._config: LogConfig = log.config
        self._segments = segments
        self._first_dirty_offset = first_dirty_offset
        self._aborted = log.aborted_transactions(segments[0].base_offset, segments[-1].next_offset)
        self._producers = log.producers.copy()
        self._groups: list[CleanedGroup] = []
        self._limits = limits
        self._cancelled = threading.Event()
        self._read_bytes = 0
        self.end_offset = first_dirty_offset
        """After `run`: every record below it was cleaned; the next compaction begins here."""
        self.stats = NO_STATS
        """After `run`: what it has cost."""
        self.is_half_done = False
        """Whether `commit` has failed while it replaced segments: what is left of that is done at the next start."""

    # --- in any thread ---

    def cancel(self) -> None:
        """Make `run` end at the next batch, with InterruptedError."""
        self._cancelled.set()

    @property
    def is_cancelled(self) -> bool:
        """Return whether `cancel` was called."""
        return self._cancelled.is_set()

    # --- in a worker thread ---

    def run(self) -> None:
        """Write the cleaned segments beside the old ones. Raises OSError, BrokerError, SegmentDamagedError."""
        began_s = time.monotonic()
        pool = OpenFiles(self._files, FILES_OPEN)
        segments = [segment.reopened_in(pool) for segment in self._segments]
        try:
            offsets = self._build_map(segments)
            self.end_offset = offsets.end_offset
            transactions = PassingTransactions(self._aborted)
            rules = FilterRules(
                offsets,
                self._producers,
                now_ms=self._clock.now_ms(),
                delete_retention_ms=self._config.delete_retention_ms,
                keeps_legacy_tombstones=True,
            )
            cleanable = [segment for segment in segments if segment.base_offset < offsets.end_offset]
            written_bytes = 0
            for group in _groups_of(cleanable, self._config.segment_bytes):
                written_bytes += self._clean_group(group, rules, transactions, pool)
            elapsed_s = time.monotonic() - began_s
            self.stats = CompactionStats(self._read_bytes, written_bytes, elapsed_s, offsets.utilization)
        finally:
            for segment in segments:
                segment.close()

    def _build_map(self, segments: list[Segment]) -> OffsetMap:
        """Return the last offset of each key in the dirty part, as much of that part as fits into the map."""
        offsets = OffsetMap(self._limits.buffer_bytes, self._limits.load_factor)
        transactions = PassingTransactions(self._aborted)
        for segment in segments:
            self._pace(0)
            if segment.next_offset <= self._first_dirty_offset:
                continue
            for batch in segment.batches_from(0):
                self._pace(batch.size_bytes)
                if batch.is_control:
                    transactions.is_marker_of_nothing(batch)
                elif not transactions.is_aborted(batch) and not _put_keys(offsets, batch, self._first_dirty_offset):
                    return offsets
                offsets.end_offset = batch.last_offset + 1
            offsets.end_offset = max(offsets.end_offset, segment.next_offset)
        return offsets

    def _clean_group(
        self, group: list[Segment], rules: FilterRules, transactions: PassingTransactions, pool: OpenFiles
    ) -> int:
        """Write one cleaned segment; returns its size in bytes."""
        base_offset = group[0].base_offset
        cleaned = Segment(
            pool, self.log.directory, base_offset, self._config.index_interval_bytes, suffix=paths.CLEANED
        )
        cleaned.create(self._clock.now_ms())
        try:
            receipts = self._write_all(cleaned, self._cleaned_batches(group, rules, transactions))
            cleaned.rebuild(ScanRules(base_offset, base_offset), _CarriedTags(receipts))
            cleaned.note_gaps()
            cleaned.transactions.rewrite(transactions.take_kept())
            cleaned.hold_for_sync()()
            cleaned.finish()
        finally:
            cleaned.close()
        by_offset = {segment.base_offset: segment for segment in self._segments}
        self._groups.append(CleanedGroup([by_offset[segment.base_offset] for segment in group], base_offset))
        return cleaned.size_bytes

    def _write_all(self, cleaned: Segment, batches: Iterable[CleanedBatch]) -> dict[int, int]:
        """Write batches one after the other; returns position -> receipt time of the v0 messages among them."""
        receipts: dict[int, int] = {}
        position = 0
        for data, receipt_ms in batches:
            self._pace(len(data))
            if receipt_ms != NO_RECEIPT:
                receipts[position] = receipt_ms
            rest = memoryview(data)
            while rest:
                taken = cleaned.file.write_at(rest, position)
                position += taken
                rest = rest[taken:]
        return receipts

    def _cleaned_batches(
        self, group: list[Segment], rules: FilterRules, transactions: PassingTransactions
    ) -> Iterator[CleanedBatch]:
        horizon_ms = self._legacy_horizon_ms()
        for segment in group:
            keeps_tombstones = segment.newest_ms() > horizon_ms
            batch_filter = BatchFilter(
                rules._replace(keeps_legacy_tombstones=keeps_tombstones),
                transactions,
                max_message_bytes=self._config.max_message_bytes,
            )
            for batch in segment.batches_from(0):
                self._read_bytes += batch.size_bytes
                self._pace(batch.size_bytes)
                receipt_ms = segment.timestamp_of(batch) if batch.magic == v0.MAGIC else NO_RECEIPT
                yield from batch_filter.clean(batch, receipt_ms)
            yield from batch_filter.finish()

    def _legacy_horizon_ms(self) -> int:
        """Return the time before which v0 and v1 tombstones of a segment are removed; none in a first compaction."""
        clean = [segment for segment in self._segments if segment.next_offset <= self._first_dirty_offset]
        return clean[-1].newest_ms() - self._config.delete_retention_ms if clean else -(2**63)

    def _pace(self, size_bytes: int) -> None:
        """Wait as long as the rate asks for so many bytes. Raises InterruptedError if the compaction was cancelled."""
        delay_s = self._limits.throttle.delay_after(size_bytes)
        if self._cancelled.wait(delay_s) if delay_s > 0 else self._cancelled.is_set():
            raise InterruptedError("the compaction was cancelled")

    # --- in the thread that appends ---

    def commit(self) -> bool:
        """Put the cleaned segments in place; False, with all as before, if the log has changed under them meanwhile.

        Raises OSError: what had been decided until then is finished at the next start.
        """
        for group in self._groups:
            if self.log.is_closed or not self.log.segment_list.may_replace(group.replaced):
                logger.info("%s changed while it was compacted: nothing is replaced", self.log.directory)
                self.discard()
                return False
        if not self._groups:
            return True
        directory = self.log.directory
        replacements = [
            Replacement(group.base_offset, tuple(segment.base_offset for segment in group.replaced))
            for group in self._groups
        ]
        commit_swap(self._files, directory, replacements)
        self.is_half_done = True
        for group, replacement in zip(self._groups, replacements, strict=True):
            swap = partial(put_in_place, self._files, directory, replacement)
            self.log.segment_list.replace(group.replaced, swap, index_interval_bytes=self._config.index_interval_bytes)
        end_swap(self._files, directory, replacements)
        self.is_half_done = False
        return True

    def discard(self) -> None:
        """Remove what `run` has written. Raises OSError."""
        for name in self._files.list(self.log.directory):
            if name.endswith(paths.CLEANED):
                self._files.remove(f"{self.log.directory}/{name}")


def plan(
    log: PartitionLog, files: Files, clock: Clock, first_dirty_offset: int, limits: CompactionLimits = NO_LIMITS
) -> Compaction | None:
    """Return the compaction of the segments that may be cleaned now, None if there are none. Raises OSError."""
    segments = cleanable_segments(log, clock.now_ms())
    if not segments or segments[-1].next_offset <= first_dirty_offset:
        return None
    return Compaction(log, files, clock, segments, first_dirty_offset=first_dirty_offset, limits=limits)


def cleanable_segments(log: PartitionLog, now_ms: int) -> list[Segment]:
    """Return the first segments of a log, up to the first segment that must not be compacted.

    The active segment, the segment of the first open transaction, a damaged segment, and segments younger than
    `min.compaction.lag.ms` must not be compacted. Raises OSError.
    """
    limit = log.last_stable_offset
    segments: list[Segment] = []
    for segment, follower in zip(log.segments, log.segments[1:], strict=False):
        segment.load()
        if segment.is_damaged:
            break
        is_young = segment.newest_ms() > now_ms - log.config.min_compaction_lag_ms
        if follower.base_offset > limit or (log.config.min_compaction_lag_ms > 0 and is_young):
            break
        segments.append(segment)
    return segments


def _put_keys(offsets: OffsetMap, batch: BatchView, first_dirty_offset: int) -> bool:
    """Show a batch's keys to the map; False if it has no room for all of them."""
    for record in iter_records(batch):
        is_dirty = record.key is not None and record.offset >= first_dirty_offset
        if is_dirty and not offsets.put(record.key or b"", record.offset):
            offsets.end_offset = record.offset
            return False
    return True


def _groups_of(segments: list[Segment], most_bytes: int) -> Iterator[list[Segment]]:
    """Group neighbours that fit into one segment together (Kafka `groupSegmentsBySize`)."""
    group: list[Segment] = []
    size_bytes = 0
    for segment in segments:
        is_too_far = bool(group) and segment.next_offset - group[0].base_offset > MAX_RELATIVE_OFFSET
        if group and (size_bytes + segment.size_bytes > most_bytes or is_too_far):
            yield group
            group, size_bytes = [], 0
        group.append(segment)
        size_bytes += segment.size_bytes
    if group:
        yield group


class _CarriedTags:
    """Tags for a cleaned segment: receipt times come along from the old ones, the rest is in the batches."""

    def __init__(self, receipts: dict[int, int]) -> None:
        self._receipts = receipts

    def tags_of(self, batch: BatchView) -> BatchTags:
        return tags_inside(batch, self._receipts.get(batch.position, NO_RECEIPT))
