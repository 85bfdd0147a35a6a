"""One segment: a file of batches in Kafka's format with its index.

An unused segment takes a few hundred bytes of memory and no open file. Its sizes and offsets are read on first use,
from the summary in its index, or from the log if there is no valid summary.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeVar

from ...protocol.records import v0, v2
from ...protocol.records.batches import BatchView, iter_batches, read_batch
from ...protocol.records.compression import Codec
from ...protocol.records.produced_cy import ProducedBatch
from ..disk.files import Buffer
from ..disk.open_files import OpenFiles, SharedFile
from ..index.batch_lookup import Place, SegmentDamagedError, first_batch_to
from ..index.batch_tags import BatchTags, OldIndexTags, Tags
from ..index.index_format import (
    NO_COUNT,
    NO_RECEIPT,
    NON_KEYED,
    IndexDamagedError,
    IndexEntry,
    IndexSummary,
    may_have_gaps,
)
from ..index.offset_index import OffsetIndex
from ..index.transaction_index import TransactionIndex
from ..recovery.recovery import ScanResult, ScanRules, scan
from .appendable_segment_cy import AppendableSegment
from .leader_epochs import LeaderEpochs
from .segment_file_names import SegmentFileNames

__all__ = ["Place", "Segment", "SegmentDamagedError"]

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

NO_TIMESTAMP = -1
MIN_CHECK_BYTES = 1 << 20
"""The least number of unverified bytes that are checked at once, so that small reads do not map the file repeatedly."""


class Segment(AppendableSegment):
    """A segment that begins at `base_offset`. Call `load` first, except before methods whose docstring exempts them."""

    __slots__ = (
        "_checked_from",
        "_checked_to",
        "_directory",
        "_names",
        "_pool",
        "_trusted_from",
        "epochs",
        "had_producers",
        "has_gaps",
        "is_damaged",
        "is_loaded",
        "path",
        "receipt_ms",
        "transactions",
    )

    def __init__(
        self, pool: OpenFiles, directory: str, base_offset: int, index_interval_bytes: int, *, suffix: str = ""
    ) -> None:
        """Create a segment; `suffix` is appended to all file names of a segment outside of a log (`.cleaned`)."""
        self._pool = pool
        self._directory = directory
        self._names = names = SegmentFileNames(directory, base_offset, suffix)
        self.path = names.log
        self._file: SharedFile | None = None
        self.recently_used = False
        self.base_offset = base_offset
        self.index = OffsetIndex(pool, names.index, base_offset, index_interval_bytes)
        self.transactions = TransactionIndex(pool.files, names.transactions)
        self.is_loaded = False
        self.is_damaged = False
        """Whether a bad batch was found in the segment."""
        self.is_suspect = False
        """Whether `tail_is_good` must be asked before a write: readers of appended batches would begin in the tail."""
        self.has_gaps = False
        """Whether offsets may be missing between batches."""
        self.had_producers = True
        """Whether the log may have had active producers when it was closed with this segment."""
        self.created_ms = 0
        self.epochs: LeaderEpochs | None = None
        """The log's leader epochs, to check batches that this process has not written itself."""
        self._forget_contents()

    def _forget_contents(self) -> None:
        self.size_bytes = 0
        self.next_offset = self.base_offset
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = -1
        self.first_timestamp = NO_TIMESTAMP
        """The largest timestamp of the first batch that has a timestamp; rolling by time counts from it."""
        self.receipt_ms = NO_RECEIPT
        """The newest receipt time, to `RECEIPT_RESOLUTION_MS`."""
        self.magics = 0
        self._trusted_from = 0
        self._checked_from = self._checked_to = 0

    @property
    def file(self) -> SharedFile:
        """Open the file; see `OpenFiles` for the rules of its use. Raises OSError. Needs no `load`."""
        self.recently_used = True
        if self._file is None:
            self._file = self._pool.open(self.path, self)
        return self._file

    # --- create, load, close, delete ---

    def create(self, now_ms: int) -> None:
        """Create an empty file and index. Raises OSError."""
        self._file = self._pool.open(self.path, self, create=True)
        self._file.truncate(0)
        self.index.create(has_gaps=False)
        self._forget_contents()
        self.created_ms = now_ms
        self.is_loaded = True

    def load(self) -> None:
        """Load sizes, offsets and timestamps from the index's summary, else by reading the log. Raises OSError."""
        if self.is_loaded:
            return
        size_bytes = self._pool.files.size(self.path)
        summary = self.index.read_summary()
        if summary is not None and summary.log_size_bytes == size_bytes:
            self.apply_summary(summary)
            return
        if size_bytes:
            logger.warning("%s has no valid index: rebuilding the index from the log", self.path)
        self.has_gaps = may_have_gaps(summary)
        result = self.rebuild(self._rules(self.base_offset))
        if result.reason is not None:
            logger.error("%s: valid up to position %d, then %s", self.path, result.valid_bytes, result.reason)
            self.is_damaged = self.is_suspect = True
        else:
            self.finish()

    def _rules(self, first_offset: int) -> ScanRules:
        return ScanRules(self.base_offset, first_offset, self.has_gaps, self.epochs)

    def apply_summary(self, summary: IndexSummary) -> None:
        """Use a summary that matches the file's size; batches are still checked when they are read."""
        self.size_bytes = self._trusted_from = summary.log_size_bytes
        self.is_suspect = True
        self.next_offset = summary.next_offset
        self.max_timestamp = summary.max_timestamp
        self.max_timestamp_offset = summary.max_timestamp_offset
        self.first_timestamp = summary.first_timestamp
        self.receipt_ms = summary.receipt
        self.magics = summary.magics
        self.has_gaps = bool(summary.has_gaps)
        self.had_producers = bool(summary.has_producers)
        self.transactions.expected_crc = summary.transactions_crc
        self.index.interval_bytes = summary.interval_bytes
        self.is_loaded = True

    def rebuild(self, rules: ScanRules, tags: Tags | None = None) -> ScanResult:
        """Check the whole file and rebuild the index from it.

        Bytes from the first bad batch on stay in the file, but are no longer part of the segment. Receipt times are
        kept if the old index can be read, otherwise estimated (see `batch_tags`).
        Raises OSError.
        """
        file = self.file
        size_bytes = file.size()
        if tags is None:
            tags = OldIndexTags(self.index, default_receipt_ms=self._pool.files.modified_ms(self.path))
        tags_of = tags.tags_of
        self._forget_contents()
        self.has_gaps = False
        self.index.create(has_gaps=rules.has_gaps)

        buffer = file.map(0, size_bytes) if size_bytes else memoryview(b"")
        result = scan(buffer, rules, lambda batch: self._take(batch, tags_of(batch)))
        self.size_bytes = result.valid_bytes
        self.next_offset = max(result.next_offset, self.base_offset)
        self.index.note_gaps(has_gaps=self.has_gaps)
        self.is_loaded = True
        return result

    def _take(self, batch: BatchView, tags: BatchTags) -> None:
        """Add a batch that a scan has found to the segment's counts."""
        self.has_gaps = self.has_gaps or tags.first_offset != self.next_offset
        self.next_offset = batch.last_offset + 1
        timestamp = tags.receipt if batch.magic == v0.MAGIC else batch.max_timestamp
        self._count(batch.magic, timestamp, batch.last_offset, tags.receipt)
        self.index.offer(
            tags.first_offset,
            batch.position,
            self.max_timestamp,
            receipt=tags.receipt,
            num_messages=tags.num_messages,
            flags=tags.flags,
        )

    def _count(self, magic: int, timestamp: int, offset: int, receipt_ms: int) -> None:
        self.magics |= 1 << magic
        if self.first_timestamp < 0:
            self.first_timestamp = timestamp
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
            self.max_timestamp_offset = offset
        if receipt_ms != NO_RECEIPT:
            self.receipt_ms = receipt_ms

    def finish(self, *, has_producers: bool = True) -> None:
        """Write the summary to the index, at a roll or when the log is closed. Raises OSError."""
        summary = self._summary()
        summary.has_producers = int(has_producers)
        self.index.finish(summary)

    def _summary(self) -> IndexSummary:
        return IndexSummary(
            base_offset=self.base_offset,
            log_size_bytes=self.size_bytes,
            next_offset=self.next_offset,
            max_timestamp=self.max_timestamp,
            max_timestamp_offset=self.max_timestamp_offset,
            first_timestamp=self.first_timestamp,
            receipt=self.receipt_ms,
            interval_bytes=self.index.interval_bytes,
            magics=self.magics,
            has_gaps=int(self.has_gaps),
            transactions_crc=self.transactions.crc(),
        )

    def release_file(self) -> None:
        """Close the file until its next use. Needs no `load`."""
        file, self._file = self._file, None
        if file is not None:
            file.close()
            self._pool.forget(self)

    def close(self) -> None:
        """Close log file and index. Needs no `load`."""
        self.release_file()
        self.index.release_file()

    def note_gaps(self) -> None:
        """Record in the index that offsets are missing in or after this segment. Raises OSError."""
        self.has_gaps = True
        self.index.note_gaps(has_gaps=True)

    def remove_files(self) -> None:
        """Delete the segment; slices stay readable until they are released. Raises OSError. Needs no `load`."""
        self.close()
        self._names.remove(self._pool.files)

    def set_aside(self) -> list[str]:
        """Rename the files to `.deleted`, as Kafka does; return the names for later removal. Raises OSError."""
        self.close()
        return self._names.set_aside(self._pool.files)

    def map(self, position: int) -> memoryview:
        """Map the bytes from `position` to the end, read-only. Raises OSError."""
        size_bytes = self.size_bytes - position
        return self.file.map(position, size_bytes) if size_bytes > 0 else memoryview(b"")

    def hold_for_sync(self) -> Callable[[], None]:
        """Return a function that flushes the records to the disk, in any thread. Raises OSError. Needs no `load`."""
        file = self.file.acquire()

        def sync() -> None:
            try:
                file.sync()
                self.transactions.sync()
            finally:
                file.release()

        return sync

    # --- writes ---

    def _write_rest(self, data: Buffer, position: int, written: int) -> None:
        """Write the rest after a short write; if that fails, remove the part of the batch that was written."""
        rest = memoryview(data)[written:]
        try:
            while rest:
                written += (taken := self.file.write_at(rest, position + written))
                if not taken:
                    raise OSError("the disk accepts no more bytes")
                rest = rest[taken:]
        except OSError:
            self._take_back(position)
            raise

    def _take_back(self, position: int) -> None:
        """Remove the bytes of a failed append; if that fails too, the next append overwrites them."""
        with suppress(OSError):
            self.file.truncate(position)
            self.index.truncate(position)

    def _index_append(self, data: Buffer, batch: ProducedBatch, position: int, receipt_ms: int, is_exact: bool) -> None:
        if batch.codec is Codec.NONE and batch.magic < v2.MAGIC:
            self._index_run(data, batch, position, receipt_ms, is_exact)
            return
        timestamp = receipt_ms if batch.magic == v0.MAGIC else batch.max_timestamp
        self._count(batch.magic, timestamp, batch.last_offset, receipt_ms)
        is_compressed = batch.codec is not Codec.NONE
        self.index.offer(
            batch.base_offset,
            position,
            self.max_timestamp,
            receipt=receipt_ms,
            receipt_is_exact=is_exact,
            num_messages=batch.record_count if is_compressed and batch.magic < v2.MAGIC else NO_COUNT,
            flags=(0 if batch.keyed else NON_KEYED) if is_compressed else None,
        )

    def _index_run(self, data: Buffer, run: ProducedBatch, position: int, receipt_ms: int, is_exact: bool) -> None:
        """Index messages one by one, since readers treat each as a batch; a rebuilt index gets the same entries."""
        for message in iter_batches(data):
            timestamp, at = receipt_ms if run.magic == v0.MAGIC else message.max_timestamp, position + message.position
            self._count(run.magic, timestamp, message.last_offset, receipt_ms)
            self.index.offer(message.last_offset, at, self.max_timestamp, receipt=receipt_ms, receipt_is_exact=is_exact)

    def truncate(self, position: int) -> None:
        """Remove the batches from `position` on and read the segment's new end from the index. Raises OSError."""
        self.cut_file(position)
        self.looked_up(lambda index: index.truncate(position))
        last = self.index_entry_for(position)
        if last is None or position <= last.position:
            self.rebuild(self._rules(self.base_offset))
            return
        self.size_bytes = position
        self._trusted_from, self._checked_to = min(self._trusted_from, position), min(self._checked_to, position)
        self.max_timestamp, self.max_timestamp_offset, self.receipt_ms = last.timestamp, -1, last.receipt
        if last.timestamp < 0:
            self.first_timestamp = NO_TIMESTAMP
        for batch in iter_batches(self.map(last.position)):
            timestamp = last.receipt if batch.magic == v0.MAGIC else batch.max_timestamp
            self._count(batch.magic, timestamp, batch.last_offset, NO_RECEIPT)
            self.next_offset = batch.last_offset + 1

    def cut_file(self, size_bytes: int) -> None:
        """Truncate the file to `size_bytes`; existing slices keep the old file. Raises OSError."""
        file = self.file
        if not file.is_held:
            file.truncate(size_bytes)
            # Without this the next crash could restore records that other nodes treat as truncated.
            file.sync()
            return
        # Readers get a copy: a mapped page beyond the end of its file raises SIGBUS, and sendfile would end early.
        head = file.read_at(size_bytes, 0)
        self.release_file()
        self._pool.files.replace(self.path, head)

    # --- reads ---

    def verify(self, position: int, end: int) -> int:
        """Check batches that this process has neither written nor read before; return the end of the valid ones.

        `position` is the start of a batch; the last batch may extend beyond `end`. Raises OSError, and
        SegmentDamagedError if the first batch is bad.
        """
        if position >= self._trusted_from or (self._checked_from <= position and end <= self._checked_to):
            return end
        entry = self.index_entry_for(position)
        start, first_offset = (0, self.base_offset) if entry is None else (entry.position, entry.offset)
        buffer = self.file.map(start, self._trusted_from - start)
        result = scan(buffer, self._rules(first_offset), stop=max(end - start, MIN_CHECK_BYTES))
        good_end = start + result.valid_bytes
        if not self._checked_from <= start <= self._checked_to:
            self._checked_from = start
        self._checked_to = good_end
        if good_end >= end or result.reason is None:
            return end
        logger.error("%s: damaged at position %d: %s", self.path, good_end, result.reason)
        self.is_damaged = self.is_suspect = True
        if good_end <= position:
            raise SegmentDamagedError(position, result.reason)
        return good_end

    def tail_is_good(self) -> bool:
        """Return whether batches may be appended: no bad batch is known, also after the last index entry.

        Raises OSError.
        """
        if self.is_suspect and not self.is_damaged and self.size_bytes:
            last = self.index_entry_for(self.size_bytes)
            with suppress(SegmentDamagedError):
                self.verify(0 if last is None else last.position, self.size_bytes)
        self.is_suspect = self.is_damaged
        return not self.is_damaged

    def locate(self, offset: int) -> Place | None:
        """Return the place of the first batch that ends at or after `offset`; None if there is none in the segment.

        Raises OSError, and SegmentDamagedError if the bytes before it are damaged.
        """
        position = self.looked_up(lambda index: index.position_before_offset(offset))
        try:
            place = first_batch_to(offset, self.file.read_at, position, self.size_bytes)
            if place is None and max(offset, self.base_offset) < self.next_offset:
                raise SegmentDamagedError(position, f"no batch with offset {offset} or later follows")
        except SegmentDamagedError:
            self.is_damaged = self.is_suspect = True
            raise
        return place

    def batches_from(self, position: int) -> Iterator[BatchView]:
        """Iterate over the checked batches from `position` on, which must be the start of a batch.

        Raises SegmentDamagedError at a bad batch, OSError.
        """
        if position >= self.size_bytes:
            return
        buffer = self.file.map(0, self.size_bytes)
        while position < self.size_bytes:
            self.verify(position, position + 1)
            batch = read_batch(buffer, position)
            if batch is None:
                return
            yield batch
            position = batch.end

    def position_before_timestamp(self, timestamp: int) -> int:
        """Return the position of a batch such that all batches before it are older than `timestamp`. Raises OSError."""
        return self.looked_up(lambda index: index.position_before_timestamp(timestamp))

    def timestamp_of(self, batch: BatchView) -> int:
        """Return the largest timestamp of the batch's records; for v0, which has no timestamps, the receipt time."""
        return batch.max_timestamp if batch.magic != v0.MAGIC else self.receipt_of(batch)

    def receipt_of(self, batch: BatchView) -> int:
        """Return the receipt time of a batch, NO_RECEIPT if it is unknown. Raises OSError."""
        entry = self.index_entry_for(batch.position)
        return NO_RECEIPT if entry is None else entry.receipt

    def index_entry_for(self, position: int) -> IndexEntry | None:
        """Return the index entry with the tags of the batch at `position`: its own or the last one before it.

        Raises OSError.
        """
        return self.looked_up(lambda index: index.tags_at(position))

    def newest_ms(self) -> int:
        """Return the largest timestamp; if no record has one, the file's modification time. Raises OSError."""
        if self.max_timestamp >= 0 or not self.size_bytes:
            return self.max_timestamp
        return self._pool.files.modified_ms(self.path)

    def newest_receipt_ms(self) -> int:
        """Return the newest receipt time; if none is known, the file's modification time. Raises OSError."""
        if self.receipt_ms != NO_RECEIPT or not self.size_bytes:
            return self.receipt_ms
        return self._pool.files.modified_ms(self.path)

    def reopened_in(self, pool: OpenFiles) -> Segment:
        """Return a second segment over the same finished files, for another thread."""
        segment = Segment(pool, self._directory, self.base_offset, self.index.interval_bytes)
        segment.apply_summary(self._summary())
        return segment

    def looked_up(self, look: Callable[[OffsetIndex], _T]) -> _T:
        """Return the result of `look` in the index; a damaged index is rebuilt first. Raises OSError."""
        try:
            return look(self.index)
        except IndexDamagedError as fault:
            logger.warning("%s: rebuilding it from the log", fault)
            end = self.size_bytes
            self.rebuild(self._rules(self.base_offset))
            if self.size_bytes < end:
                logger.error("%s: the bytes after position %d cannot be read", self.path, self.size_bytes)
            return look(self.index)
