"""One segment: a file of batches in Kafka's format with its index.

A segment that nobody uses costs a few hundred bytes of memory and no open file: what it knows of itself is read from
its index's summary on first use, or from the log where there is none that can be believed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeVar

from ...protocol.records import v0, v2
from ...protocol.records.batches import BatchView, iter_batches, read_batch
from ...protocol.records.compression import Codec
from ...protocol.records.produced import ProducedBatch
from ..disk import paths
from ..disk.files import Buffer
from ..disk.open_files import OpenFiles, SharedFile
from ..index.batch_lookup import Place, SegmentDamagedError, first_batch_to
from ..index.batch_tags import BatchTags, OldIndexTags, Tags
from ..index.offset_index import (
    NO_COUNT,
    NO_RECEIPT,
    NON_KEYED,
    IndexDamagedError,
    IndexEntry,
    IndexSummary,
    OffsetIndex,
)
from ..index.transaction_index import TransactionIndex
from ..recovery.recovery import ScanResult, ScanRules, scan
from .leader_epochs import LeaderEpochs

__all__ = ["Place", "Segment", "SegmentDamagedError"]

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

NO_TIMESTAMP = -1
MIN_CHECK_BYTES = 1 << 20
"""How far a check of unknown bytes goes at least, so that small reads do not map the file again and again."""


class Segment:
    """The segment that begins at `base_offset`. Call `load` before anything that its docstring does not exempt."""

    __slots__ = (
        "_checked_from",
        "_checked_to",
        "_directory",
        "_file",
        "_paths",
        "_pool",
        "_trusted_from",
        "base_offset",
        "created_ms",
        "epochs",
        "first_timestamp",
        "had_producers",
        "has_gaps",
        "index",
        "is_damaged",
        "is_loaded",
        "is_suspect",
        "magics",
        "max_timestamp",
        "max_timestamp_offset",
        "next_offset",
        "path",
        "receipt_ms",
        "recently_used",
        "size_bytes",
        "transactions",
    )

    def __init__(
        self, pool: OpenFiles, directory: str, base_offset: int, index_interval_bytes: int, *, suffix: str = ""
    ) -> None:
        """Create a segment; `suffix` ends the names of all files of a segment outside of a log (`.cleaned`)."""
        self._pool = pool
        self._directory = directory
        stem = f"{directory}/{base_offset:020d}"
        self._paths = tuple(stem + kind + suffix for kind in (paths.LOG, paths.INDEX, paths.TRANSACTION_INDEX))
        self.path, index_path, transactions_path = self._paths
        self._file: SharedFile | None = None
        self.recently_used = False
        self.base_offset = base_offset
        self.index = OffsetIndex(pool, index_path, base_offset, index_interval_bytes)
        self.transactions = TransactionIndex(pool.files, transactions_path)
        self.is_loaded = False
        self.is_damaged = False
        """Whether a bad batch was met in it."""
        self.is_suspect = False
        """Ask `tail_is_good` before anything is written: a reader of what follows would begin in the tail."""
        self.has_gaps = False
        """Whether offsets may be missing between batches."""
        self.had_producers = True
        """Whether a producer may have been known when the log was closed with this segment."""
        self.created_ms = 0
        self.epochs: LeaderEpochs | None = None
        """The log's, for checks of what this process has not written itself."""
        self._forget_contents()

    def _forget_contents(self) -> None:
        self.size_bytes = 0
        self.next_offset = self.base_offset
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = -1
        self.first_timestamp = NO_TIMESTAMP
        """Largest timestamp of the first batch that has one: rolling by time counts from it."""
        self.receipt_ms = NO_RECEIPT
        """When the last v0 message came."""
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

    # --- coming and going ---

    def create(self, now_ms: int) -> None:
        """Make an empty file and index. Raises OSError."""
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
            self.believe(summary)
            return
        if size_bytes:
            logger.warning("%s has no index that fits it: building one", self.path)
        self.has_gaps = self.may_have_gaps(summary)
        result = self.rebuild(self._rules(self.base_offset))
        if result.reason is not None:
            logger.error("%s: good up to position %d, then %s", self.path, result.valid_bytes, result.reason)
            self.is_damaged = self.is_suspect = True
        else:
            self.finish()

    def _rules(self, first_offset: int) -> ScanRules:
        return ScanRules(self.base_offset, first_offset, self.has_gaps, self.epochs)

    @staticmethod
    def may_have_gaps(summary: IndexSummary | None) -> bool:
        """Return whether offsets may be missing; True without a summary."""
        return summary is None or bool(summary.has_gaps)

    def believe(self, summary: IndexSummary) -> None:
        """Take a summary that fits the file's size for what the log holds; batches are still checked when read."""
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
        """Check the whole file and build the index anew from it.

        What follows the first bad batch is left where it is, but is no part of the segment any more. Receipt times
        of v0 messages are kept if the old index can be read, else the file's time of last change stands for them.
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
        """Count a batch that a scan has found."""
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
        """Note the summary in the index: at a roll, or when the log is closed. Raises OSError."""
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

    def let_go(self) -> None:
        """Close the file until its next use. Needs no `load`."""
        file, self._file = self._file, None
        if file is not None:
            file.close()
            self._pool.forget(self)

    def close(self) -> None:
        """Let go of log and index. Needs no `load`."""
        self.let_go()
        self.index.let_go()

    def note_gaps(self) -> None:
        """Note that offsets are missing in or behind this segment. Raises OSError."""
        self.has_gaps = True
        self.index.note_gaps(has_gaps=True)

    def remove_files(self) -> None:
        """Delete the segment; slices that are held stay readable. Raises OSError. Needs no `load`."""
        self.close()
        for path in self._paths:
            self._pool.files.remove(path)

    def set_aside(self) -> list[str]:
        """Rename the files to `.deleted`, as Kafka does; returns them for later removal. Raises OSError."""
        self.close()
        renamed = []
        for path in self._paths:
            if self._pool.files.exists(path):
                self._pool.files.rename(path, path + paths.DELETED)
                renamed.append(path + paths.DELETED)
        return renamed

    def map(self, position: int) -> memoryview:
        """Map the bytes from `position` to the end, read-only. Raises OSError."""
        size_bytes = self.size_bytes - position
        return self.file.map(position, size_bytes) if size_bytes > 0 else memoryview(b"")

    def hold_for_sync(self) -> Callable[[], None]:
        """Return a function that forces the records to the disk, in any thread. Raises OSError. Needs no `load`."""
        file = self.file.acquire()

        def sync() -> None:
            try:
                file.sync()
                self.transactions.sync()
            finally:
                file.release()

        return sync

    # --- writing ---

    def append(self, data: Buffer, batch: ProducedBatch, receipt_ms: int = NO_RECEIPT) -> None:
        """Write one numbered batch (or run of v0 or v1 messages), all of `data`, at the end.

        `receipt_ms` is needed for v0, which has no timestamps of its own. Raises OSError; nothing is appended then.
        """
        position = self.size_bytes
        size_bytes = len(data)
        written = (self._file or self.file).write_at(data, position)
        if written != size_bytes:
            self._write_rest(data, position, written)
        self.recently_used = True
        magic = batch.magic
        if magic == 2 and not batch.codec and position < self.index.next_entry_position:
            # The common case of `_index_append`, without its calls: this is the hot path.
            self.magics |= 4
            timestamp = batch.max_timestamp
            if timestamp > self.max_timestamp:
                self.max_timestamp = timestamp
                self.max_timestamp_offset = batch.last_offset
            if self.first_timestamp < 0:
                self.first_timestamp = timestamp
        else:
            try:
                self._index_append(data, batch, position, receipt_ms)
            except OSError:
                self._take_back(position)
                raise
        self.size_bytes = position + size_bytes
        self.next_offset = batch.last_offset + 1

    def _write_rest(self, data: Buffer, position: int, written: int) -> None:
        """Go on after a short write; if that fails leave no part of the batch behind."""
        rest = memoryview(data)[written:]
        try:
            while rest:
                written += (taken := self.file.write_at(rest, position + written))
                if not taken:
                    raise OSError("the disk takes no more bytes")
                rest = rest[taken:]
        except OSError:
            self._take_back(position)
            raise

    def _take_back(self, position: int) -> None:
        """Remove what a failed append wrote; if that fails too, the next append overwrites the bytes."""
        with suppress(OSError):
            self.file.truncate(position)
            self.index.truncate(position)

    def _index_append(self, data: Buffer, batch: ProducedBatch, position: int, receipt_ms: int) -> None:
        if batch.codec is Codec.NONE and batch.magic < v2.MAGIC:
            self._index_run(data, batch, position, receipt_ms)
            return
        timestamp = receipt_ms if batch.magic == v0.MAGIC else batch.max_timestamp
        self._count(batch.magic, timestamp, batch.last_offset, receipt_ms)
        is_compressed = batch.codec is not Codec.NONE
        self.index.offer(
            batch.base_offset,
            position,
            self.max_timestamp,
            receipt=receipt_ms,
            num_messages=batch.record_count if is_compressed and batch.magic < v2.MAGIC else NO_COUNT,
            flags=(0 if batch.keyed else NON_KEYED) if is_compressed else None,
        )

    def _index_run(self, data: Buffer, run: ProducedBatch, position: int, receipt_ms: int) -> None:
        """Index messages one by one, as every reader takes them for batches; a rebuilt index gets the same entries."""
        for message in iter_batches(data):
            timestamp = receipt_ms if run.magic == v0.MAGIC else message.max_timestamp
            at = position + message.position
            self._count(run.magic, timestamp, message.last_offset, receipt_ms)
            self.index.offer(message.last_offset, at, self.max_timestamp, receipt=receipt_ms)

    def truncate(self, position: int) -> None:
        """Drop the batches from `position` on, and learn from the index what is left. Raises OSError."""
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
        """Make the file end at `size_bytes`; slices that are held keep the old one. Raises OSError."""
        file = self.file
        if not file.is_held:
            file.truncate(size_bytes)
            # Else the next crash might bring back what others were told is gone.
            file.sync()
            return
        # A mapped page beyond the end of its file is a SIGBUS, and a sendfile would end early: give readers a twin.
        head = file.read_at(size_bytes, 0)
        self.let_go()
        self._pool.files.replace(self.path, head)

    # --- reading ---

    def verify(self, position: int, end: int) -> int:
        """Check batches that this process has neither written nor read before; returns where the good ones end.

        `position` must begin a batch; the last batch may reach beyond `end`. Raises OSError, and SegmentDamagedError if
        the very first one is bad.
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
        """Return whether batches may be appended: no batch is known to be bad, also behind the last index entry.

        Raises OSError.
        """
        if self.is_suspect and not self.is_damaged and self.size_bytes:
            last = self.index_entry_for(self.size_bytes)
            with suppress(SegmentDamagedError):
                self.verify(0 if last is None else last.position, self.size_bytes)
        self.is_suspect = self.is_damaged
        return not self.is_damaged

    def locate(self, offset: int) -> Place | None:
        """Find the first batch that ends at or after `offset`, None if the segment has none.

        Raises OSError, and SegmentDamagedError if there are no batches on the way.
        """
        position = self.looked_up(lambda index: index.position_before_offset(offset))
        try:
            place = first_batch_to(offset, self.file.read_at, position, self.size_bytes)
            if place is None and max(offset, self.base_offset) < self.next_offset:
                raise SegmentDamagedError(position, f"no batch to offset {offset} after it")
        except SegmentDamagedError:
            self.is_damaged = self.is_suspect = True
            raise
        return place

    def batches_from(self, position: int) -> Iterator[BatchView]:
        """Iterate over the checked batches from `position` on, which must be the start of a batch.

        Raises SegmentDamagedError at a bad one, OSError.
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
        """Return a batch's position before which all batches are older than `timestamp`. Raises OSError."""
        return self.looked_up(lambda index: index.position_before_timestamp(timestamp))

    def timestamp_of(self, batch: BatchView) -> int:
        """Return the largest timestamp of the batch's records; for v0, which has no timestamps, the time of receipt."""
        if batch.magic != v0.MAGIC:
            return batch.max_timestamp
        entry = self.index_entry_for(batch.position)
        return NO_TIMESTAMP if entry is None else entry.receipt

    def index_entry_for(self, position: int) -> IndexEntry | None:
        """Find the entry with the tags of the batch at `position`: its own or the last before it. Raises OSError."""
        return self.looked_up(lambda index: index.tags_at(position))

    def newest_ms(self) -> int:
        """Return the largest timestamp; if no record has one, the time of the file's last write. Raises OSError."""
        if self.max_timestamp >= 0 or not self.size_bytes:
            return self.max_timestamp
        return self._pool.files.modified_ms(self.path)

    def reopened_in(self, pool: OpenFiles) -> Segment:
        """Open the same finished files once more, for another thread."""
        segment = Segment(pool, self._directory, self.base_offset, self.index.interval_bytes)
        segment.believe(self._summary())
        return segment

    def looked_up(self, look: Callable[[OffsetIndex], _T]) -> _T:
        """Return the result of `look` in the index; a damaged index is rebuilt first. Raises OSError."""
        try:
            return look(self.index)
        except IndexDamagedError as fault:
            logger.warning("%s: building it anew from the log", fault)
            end = self.size_bytes
            self.rebuild(self._rules(self.base_offset))
            if self.size_bytes < end:
                logger.error("%s: what follows position %d cannot be read", self.path, self.size_bytes)
            return look(self.index)
