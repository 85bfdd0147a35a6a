"""One compaction of one log, which keeps the last record of each key (Kafka `Cleaner`).

`plan` and `commit` are called in the thread that appends; `run` is the long part, for a worker thread: it reads
segments that are no longer written and writes new ones beside them, one group of consecutive segments at a time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator
from functools import partial
from typing import NamedTuple

from ...protocol.records import v2
from ...protocol.records.batches import BatchView, iter_records
from ..clock import Clock
from ..disk import paths
from ..disk.files import Files
from ..disk.io_throttle import IoThrottle
from ..disk.open_files import OpenFiles
from ..index.batch_tags import BatchTags, tags_inside
from ..index.index_format import NO_COUNT, NO_RECEIPT, NON_KEYED, IndexEntry
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
"""The number of file descriptors that a compaction may keep open."""


class CompactionLimits(NamedTuple):
    """The limits of one compaction: size of the key map in bytes, its load factor, and the rate of reads and writes."""

    buffer_bytes: int = DEDUPE_BUFFER_BYTES
    load_factor: float = LOAD_FACTOR
    throttle: IoThrottle = IoThrottle()


class CompactionStats(NamedTuple):
    """The cost of one compaction (Kafka `CleanerStats`)."""

    read_bytes: int = 0
    written_bytes: int = 0
    elapsed_s: float = 0.0
    buffer_utilization: float = 0.0


NO_LIMITS = CompactionLimits()
NO_STATS = CompactionStats()


class CleanedGroup(NamedTuple):
    """Segments that are replaced by one segment, and the base offset of the new one."""

    replaced: list[Segment]
    base_offset: int


class Compaction:
    """A planned compaction: call `run`, then `commit` or `discard`."""

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
        """Plan to clean `segments`, the first segments of the log, which are dirty from `first_dirty_offset` on.

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
        """Set by `run`: all records below this offset are clean; the next compaction begins here."""
        self.stats = NO_STATS
        """Set by `run`: the cost of the compaction."""
        self.is_half_done = False
        """Whether `commit` failed while replacing segments; the next start completes the replacement."""

    # --- in any thread ---

    def cancel(self) -> None:
        """Cancel `run`, which then raises InterruptedError at the next batch."""
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
        """Return the map of each key's last offset in the dirty part, as far as the keys fit into the map."""
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
                elif not transactions.is_aborted(batch):
                    is_keyless = _is_keyless(segment.index_entry_for(batch.position), batch)
                    if not is_keyless and not _put_keys(offsets, batch, self._first_dirty_offset):
                        return offsets
                offsets.end_offset = batch.last_offset + 1
            offsets.end_offset = max(offsets.end_offset, segment.next_offset)
        return offsets

    def _clean_group(
        self, group: list[Segment], rules: FilterRules, transactions: PassingTransactions, pool: OpenFiles
    ) -> int:
        """Write one cleaned segment; return its size in bytes."""
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
        """Write batches one after the other; return their receipt times, where they are known, by position."""
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
        batch_filter = BatchFilter(rules, transactions, max_message_bytes=self._config.max_message_bytes)
        for segment in group:
            batch_filter.keeps_legacy_tombstones = segment.newest_ms() > horizon_ms
            for batch in segment.batches_from(0):
                self._read_bytes += batch.size_bytes
                self._pace(batch.size_bytes)
                entry = segment.index_entry_for(batch.position)
                receipt_ms = NO_RECEIPT if entry is None else entry.receipt
                yield from batch_filter.clean(batch, receipt_ms, is_keyless=_is_keyless(entry, batch))
        yield from batch_filter.finish()

    def _legacy_horizon_ms(self) -> int:
        """Return the time before which v0 and v1 tombstones of a segment are removed.

        A first compaction removes none.
        """
        clean = [segment for segment in self._segments if segment.next_offset <= self._first_dirty_offset]
        return clean[-1].newest_ms() - self._config.delete_retention_ms if clean else -(2**63)

    def _pace(self, size_bytes: int) -> None:
        """Wait as the rate limit requires after `size_bytes`.

        Raises InterruptedError if the compaction was cancelled.
        """
        delay_s = self._limits.throttle.delay_after(size_bytes)
        if self._cancelled.wait(delay_s) if delay_s > 0 else self._cancelled.is_set():
            raise InterruptedError("the compaction was cancelled")

    # --- in the thread that appends ---

    def commit(self) -> bool:
        """Replace the old segments by the cleaned ones; return False, without a change, if the log has changed.

        Raises OSError; the next start then completes the replacements that were committed.
        """
        for group in self._groups:
            if self.log.is_closed or not self.log.segment_list.may_replace(group.replaced):
                logger.info("%s changed while it was compacted: no segment is replaced", self.log.directory)
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
        """Remove the files that `run` has written. Raises OSError."""
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


def _is_keyless(entry: IndexEntry | None, batch: BatchView) -> bool:
    """Return whether a compressed batch has no keys according to its tags, so that it need not be decompressed."""
    return entry is not None and batch.is_compressed and bool(entry.flags & NON_KEYED)


def _put_keys(offsets: OffsetMap, batch: BatchView, first_dirty_offset: int) -> bool:
    """Put a batch's keys into the map; return False if the map has no room for all of them."""
    for record in iter_records(batch):
        is_dirty = record.key is not None and record.offset >= first_dirty_offset
        if is_dirty and not offsets.put(record.key or b"", record.offset):
            offsets.end_offset = record.offset
            return False
    return True


def _groups_of(segments: list[Segment], most_bytes: int) -> Iterator[list[Segment]]:
    """Group consecutive segments that fit into one segment (Kafka `groupSegmentsBySize`)."""
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
    """The tags for a cleaned segment: receipt times from the old segments, all other tags from the batches.

    Compaction keeps only records with keys, so a v2 batch is not decompressed: without its tag it counts as keyed.
    """

    def __init__(self, receipts: dict[int, int]) -> None:
        self._receipts = receipts

    def tags_of(self, batch: BatchView) -> BatchTags:
        receipt = self._receipts.get(batch.position, NO_RECEIPT)
        if batch.magic == v2.MAGIC:
            return BatchTags(batch.stored_offset, receipt, NO_COUNT, 0 if batch.is_compressed else None)
        return tags_inside(batch, receipt)
