"""The index of one segment: look-ups by offset, by time and by position, in a mapped file laid out by `index_format`.

The index can be rebuilt from the log, except for receipt times: see `batch_tags`. Any inconsistency raises
`IndexDamagedError`, and the segment rebuilds the index.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from ..disk.files import MappedTable
from ..disk.open_files import OpenFiles
from .index_format import (
    ENTRY,
    ENTRY_SIZE,
    HEADER_SIZE,
    NO_COUNT,
    NO_RECEIPT,
    RECEIPT_RESOLUTION_MS,
    IndexDamagedError,
    IndexEntry,
    IndexSummary,
    entry_checksum,
    pack_header,
    parse_summary,
)

_HEADER = Struct(f"{HEADER_SIZE}s")
_RELATIVE_OFFSET, _POSITION, _TIMESTAMP, _RECEIPT = range(4)
_BOTH_SIDES = 3

MIN_CAPACITY = 4096
"""The size in bytes of a new index file (125 entries); the file doubles when full and is trimmed at the end."""
MAX_GROWTH = 1 << 20


class OffsetIndex:
    """The index of the segment that begins at `base_offset`, opened on first use."""

    __slots__ = (
        "_count",
        "_flags",
        "_is_finished",
        "_last_offset",
        "_last_position",
        "_pool",
        "_table",
        "base_offset",
        "interval_bytes",
        "next_entry_position",
        "next_receipt_ms",
        "path",
        "receipt_ms",
        "recently_used",
    )

    def __init__(self, pool: OpenFiles, path: str, base_offset: int, interval_bytes: int) -> None:
        self._pool = pool
        self._table: MappedTable | None = None
        self._count = -1
        self._is_finished = False
        self._last_offset = base_offset
        self._last_position = 0
        self.receipt_ms = NO_RECEIPT
        """The receipt time of the last entry, once the index has been used."""
        self._flags = 0
        self.path = path
        self.base_offset = base_offset
        self.interval_bytes = interval_bytes
        self.next_entry_position = 0
        """Each batch at or after this position needs `offer`; before it only a batch with tags of its own does."""
        self.next_receipt_ms = 0
        """Each batch that is received at or after this time needs `offer`."""
        self.recently_used = False

    # --- writes ---

    def create(self, *, has_gaps: bool) -> None:
        """Create an empty index, replacing an existing one. Raises OSError."""
        self.release_file()
        self._count = 0
        self._is_finished = False
        self._set_last(self.base_offset, 0, NO_RECEIPT, 0)
        self._map(MIN_CAPACITY, create=True)
        summary = IndexSummary(self.base_offset, interval_bytes=self.interval_bytes, has_gaps=int(has_gaps))
        self._write_header(summary)
        self._erase_from(0)

    def offer(
        self,
        first_offset: int,
        position: int,
        timestamp: int,
        *,
        receipt: int = NO_RECEIPT,
        receipt_is_exact: bool = True,
        num_messages: int = NO_COUNT,
        flags: int | None = None,
    ) -> None:
        """Add an entry for the batch at `position` if the rules above require one.

        `receipt` and `flags` default to those of the entry before. A receipt time that is not exact needs no entry
        before `next_receipt_ms`. Raises OSError if the file cannot grow.
        """
        table = self._table or self._open()
        self.recently_used = True
        is_near = receipt < self.next_receipt_ms and position < self.next_entry_position
        if receipt == NO_RECEIPT or (is_near and not receipt_is_exact):
            receipt = self.receipt_ms
        flags = self._flags if flags is None else flags
        has_tags = receipt != self.receipt_ms or flags != self._flags or num_messages != NO_COUNT
        if position < self.next_entry_position and not has_tags:
            return
        if self._is_finished:
            self._reopen()
        end = HEADER_SIZE + self._count * ENTRY_SIZE
        if end + ENTRY_SIZE > len(table):
            table = self._map(len(table) + min(len(table), MAX_GROWTH))
        entry = IndexEntry(first_offset, position, timestamp, receipt, num_messages, flags)
        self._write_entry(table, self._count, entry)
        self._count += 1
        self._set_last(first_offset, position, receipt, flags)

    def finish(self, summary: IndexSummary) -> None:
        """Write `summary`, trim the file and close it. Raises OSError."""
        if self._table is None:
            self._open()
        summary.entry_count = self._count
        self._write_header(summary)
        self._is_finished = True
        used = HEADER_SIZE + self._count * ENTRY_SIZE
        self.release_file()
        file = self._pool.files.open(self.path)
        try:
            file.truncate(used)
        finally:
            file.close()

    def truncate(self, log_size_bytes: int) -> None:
        """Remove the entries of batches at or after position `log_size_bytes`. Raises OSError, IndexDamagedError."""
        if self._table is None:
            self._open()
        if self._is_finished:
            self._reopen()
        self._count = self._count_up_to(_POSITION, log_size_bytes - 1)
        self._erase_from(self._count)
        self._restore_last()

    def drop_before(self, log_position: int, first_offset: int) -> None:
        """Remove the entries before `log_position`; add one there for the batch that begins with `first_offset`.

        Raises OSError, IndexDamagedError.
        """
        kept = [entry for entry in self.entries() if entry.position >= log_position]
        before = self.tags_at(log_position) or IndexEntry(0, -1, -1, NO_RECEIPT, NO_COUNT, 0)
        if before.position != log_position:
            kept.insert(0, before._replace(offset=first_offset, position=log_position, num_messages=NO_COUNT))
        table = self._table or self._open()
        if self._is_finished:
            self._reopen()
        for number, entry in enumerate(kept):
            self._write_entry(table, number, entry)
        self._count = len(kept)
        self._erase_from(self._count)
        self._restore_last()

    def note_gaps(self, *, has_gaps: bool) -> None:
        """Set the flag of missing offsets in the header of the active segment's index. Raises OSError."""
        self._write_header(IndexSummary(self.base_offset, interval_bytes=self.interval_bytes, has_gaps=int(has_gaps)))

    def _reopen(self) -> None:
        """Mark the index in the header as one whose number of entries is not final."""
        table = self._table or self._open()
        summary = parse_summary(table.part(0, HEADER_SIZE), self.base_offset)
        if summary is not None:
            self.note_gaps(has_gaps=bool(summary.has_gaps))
        self._is_finished = False

    def _write_header(self, summary: IndexSummary) -> None:
        table = self._table or self._open()
        table.pack(_HEADER, 0, pack_header(summary))

    # --- reads ---

    @property
    def entry_count(self) -> int:
        """Return the number of entries in use. Raises OSError, IndexDamagedError."""
        if self._table is None:
            self._open()
        return self._count

    def read_summary(self) -> IndexSummary | None:
        """Read the header's summary; return None without a valid summary."""
        try:
            file = self._pool.files.open(self.path)
        except OSError:
            return None
        try:
            header = file.read_at(HEADER_SIZE, 0)
        except OSError:
            return None
        finally:
            file.close()
        return parse_summary(header, self.base_offset)

    def entry(self, number: int) -> IndexEntry:
        """Return entry `number`, counted from 0. Raises IndexDamagedError if the entry's checksum is wrong."""
        table = self._table or self._open()
        self.recently_used = True
        at = HEADER_SIZE + number * ENTRY_SIZE
        relative, position, timestamp, receipt, num_messages, flags, checksum = table.unpack(ENTRY, at)
        if checksum != entry_checksum(table.part(at, at + ENTRY_SIZE), self.base_offset):
            raise IndexDamagedError(f"entry {number} of {self.path} has a wrong checksum")
        return IndexEntry(self.base_offset + relative, position, timestamp, receipt, num_messages, flags)

    def entries(self) -> Iterator[IndexEntry]:
        """Iterate over all entries. Raises IndexDamagedError at the first bad entry."""
        for number in range(self.entry_count):
            yield self.entry(number)

    def salvaged_entries(self) -> list[IndexEntry | None]:
        """Return all entries of a file that may be damaged, with None for each one that is damaged or cut off.

        Raises OSError.
        """
        file = self._pool.files.open(self.path)
        try:
            data = file.read_at(self._pool.files.size(self.path), 0)
        finally:
            file.close()
        salvaged: list[IndexEntry | None] = []
        count = 0
        for at in range(HEADER_SIZE, len(data) - ENTRY_SIZE + 1, ENTRY_SIZE):
            relative, *fields, checksum = ENTRY.unpack_from(data, at)
            is_good = checksum == entry_checksum(data[at : at + ENTRY_SIZE], self.base_offset)
            salvaged.append(IndexEntry(self.base_offset + relative, *fields) if is_good else None)
            if any(data[at : at + ENTRY_SIZE]):
                count = len(salvaged)
        summary = parse_summary(data[:HEADER_SIZE], self.base_offset)
        promised = -1 if summary is None else summary.entry_count
        # The file of an index that was not closed ends with zeros.
        is_cut = promised > count if promised >= 0 else count == len(salvaged)
        return salvaged[:count] + [None] * is_cut

    def position_before_offset(self, offset: int) -> int:
        """Return the position of the last indexed batch that begins at or before `offset`; 0 if there is none."""
        if self._table is not None and offset >= self._last_offset:
            self.recently_used = True
            return self._last_position
        number = self._count_up_to(_RELATIVE_OFFSET, offset - self.base_offset)
        return self.entry(number - 1).position if number else 0

    def position_before_timestamp(self, timestamp: int) -> int:
        """Return the last indexed position before which every batch is older than `timestamp`."""
        number = self._count_up_to(_TIMESTAMP, timestamp - 1)
        return self.entry(number - 1).position if number else 0

    def first_offset_received_since(self, receipt_ms: int) -> int | None:
        """Return the offset of the first entry received at `receipt_ms` or later, if entries before it were earlier.

        Returns None if no entry is known to be earlier, or all are. Receipt times increase, unless the clock was set
        back. Raises OSError, IndexDamagedError.
        """
        number = self._count_up_to(_RECEIPT, receipt_ms - 1)
        if number in (0, self.entry_count) or self.entry(number - 1).receipt == NO_RECEIPT:
            return None
        return self.entry(number).offset

    def first_receipt_ms(self) -> int:
        """Return the receipt time of the first batch, or `NO_RECEIPT`. Raises OSError, IndexDamagedError."""
        return self.entry(0).receipt if self.entry_count else NO_RECEIPT

    def tags_at(self, position: int) -> IndexEntry | None:
        """Return the entry with the tags of the batch at `position`: its own entry, or the last one before it."""
        number = self._count_up_to(_POSITION, position)
        return self.entry(number - 1) if number else None

    def entries_for(self, position: int, end: int) -> list[IndexEntry]:
        """Return the entries with the tags of the batches from `position` to `end`: `tags_at` of the first, and later.

        Raises IndexDamagedError.
        """
        first = max(self._count_up_to(_POSITION, position) - 1, 0)
        return [self.entry(number) for number in range(first, self._count_up_to(_POSITION, end - 1))]

    def last_tags(self, position: int) -> tuple[int, int] | None:
        """Return receipt time and flags of the batches from `position` on; None unless all entries are before it."""
        if self._table is None or not self._count or position <= self._last_position:
            return None
        return self.receipt_ms, self._flags

    # --- the file ---

    def release_file(self) -> None:
        """Unmap the file; the next use maps it again."""
        table, self._table = self._table, None
        if table is not None:
            table.close()
            self._pool.forget(self)

    def sync(self) -> None:
        """Flush the entries to the disk. Raises OSError."""
        if self._table is not None:
            self._table.sync()

    def _open(self) -> MappedTable:
        try:
            size = self._pool.files.size(self.path)
        except FileNotFoundError as fault:
            raise IndexDamagedError(f"{self.path} is missing") from fault
        if size < HEADER_SIZE:
            raise IndexDamagedError(f"{self.path} is truncated: it has {size} bytes")
        table = self._map(size)
        if self._count < 0 or HEADER_SIZE + self._count * ENTRY_SIZE > size:
            self._count = self._count_entries(table)
        self._restore_last()
        return table

    def _count_entries(self, table: MappedTable) -> int:
        summary = parse_summary(table.part(0, HEADER_SIZE), self.base_offset)
        capacity = (len(table) - HEADER_SIZE) // ENTRY_SIZE
        if summary is not None and summary.entry_count >= 0:
            self._is_finished = True
            if summary.entry_count > capacity:
                raise IndexDamagedError(f"{self.path} is truncated: {summary.entry_count} entries do not fit into it")
            return summary.entry_count
        # The index was not closed: zeros follow the last entry, and zeros are no valid entry.
        low, high = 0, capacity
        while low < high:
            middle = (low + high) // 2
            if table.unpack(ENTRY, HEADER_SIZE + middle * ENTRY_SIZE)[-1]:
                low = middle + 1
            else:
                high = middle
        return low

    def _map(self, size_bytes: int, *, create: bool = False) -> MappedTable:
        file = self._pool.files.open(self.path, create=create)
        try:
            if create:
                # Old entries beyond the new size would reappear when the index grows.
                file.truncate(0)
            table = file.map_table(size_bytes)
        finally:
            file.close()
        previous, self._table = self._table, table
        if previous is not None:
            previous.close()
        else:
            self._pool.register(self)
        return table

    def _erase_from(self, number: int) -> None:
        table = self._table or self._open()
        start = HEADER_SIZE + number * ENTRY_SIZE
        table.pack(Struct(f"{len(table) - start}s"), start, b"")

    def _restore_last(self) -> None:
        if self._count:
            last = self.entry(self._count - 1)
            self._set_last(last.offset, last.position, last.receipt, last.flags)
        else:
            self._set_last(self.base_offset, 0, NO_RECEIPT, 0)

    def _set_last(self, offset: int, position: int, receipt: int, flags: int) -> None:
        self._last_offset = offset
        self._last_position = position
        self.receipt_ms = receipt
        self._flags = flags
        self.next_entry_position = position + self.interval_bytes + 1
        self.next_receipt_ms = receipt + RECEIPT_RESOLUTION_MS

    def _write_entry(self, table: MappedTable, number: int, entry: IndexEntry) -> None:
        fields = (entry.offset - self.base_offset, *entry[1:])
        checksum = entry_checksum(ENTRY.pack(*fields, 0), self.base_offset)
        table.pack(ENTRY, HEADER_SIZE + number * ENTRY_SIZE, *fields, checksum)

    def _count_up_to(self, field: int, limit: int) -> int:
        """Count the entries with a raw `field` of at most `limit`; offset, position and timestamp only rise.

        Offsets and positions rise evenly in most logs, so the search begins where the entry then is.
        """
        table = self._table or self._open()
        low, high = 0, self._count
        last = (self._last_offset - self.base_offset, self._last_position)[field] if field <= _POSITION else 0
        probe = high * limit // last if 0 <= limit < last else high // 2
        step, sides = 1, 0
        while low < high:
            at = min(max(probe, low), high - 1)
            if table.unpack(ENTRY, HEADER_SIZE + at * ENTRY_SIZE)[field] <= limit:
                low, sides = at + 1, sides | 1
                probe = at + step
            else:
                high, sides = at, sides | 2
                probe = at - step
            step *= 2
            if sides == _BOTH_SIDES:
                probe = (low + high) // 2
        return low
