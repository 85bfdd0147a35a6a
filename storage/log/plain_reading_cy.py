"""Reads of a log without the objects that only rare reads need: from an offset to a range of a segment's file.

`PlainReader` takes the steps of `PartitionLog.read` and `cut_incomplete_batch` for logs whose files and index are open,
and reads the heads of batches into a buffer of its own. It leaves every other read, and each one that meets damage or
an error, to those two (`ReadOutcome.NOT_PLAIN`): they report errors and rebuild indexes.

This is ordinary Python that is also compiled: ``plain_reading_cy.pxd`` has the C types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

try:
    import cython
except ImportError:
    from ...protocol.records import cython_stand_in as cython

from ..disk.files import OsMappedTable
from ..index.batch_lookup import SegmentDamagedError
from ..index.index_format import ENTRY_SIZE, HEADER_SIZE
from .log_reading import HEADS_BYTES
from .read_outcome import ReadOutcome

if not cython.compiled:
    from ...protocol.records.message_bytes import int32_at, int64_at, uint32_at
    from .appendable_log_cy import AppendableLog
    from .appendable_segment_cy import AppendableSegment
    from .file_reads import read_at

if TYPE_CHECKING:
    from mmap import mmap

    from ..disk.open_files import SharedFile
    from ..index.offset_index import OffsetIndex
    from .segment import Segment

NOT_PLAIN, EMPTY, FOUND = map(int, ReadOutcome)
_NOWHERE = -1
"""The position of a batch that was not found."""
_ENTRY_SIZE = ENTRY_SIZE
_HEADER_SIZE = HEADER_SIZE
_OFFSET_AT, _POSITION_AT, _CHECKSUM_AT = 0, 4, 30
"""The places of fields in an entry of the index (`index_format`)."""
_FIRST_HEAD_BYTES = 128
"""The bytes that are read first: most look-ups end at the batch that the index has named."""
_HEADS_BYTES = HEADS_BYTES
_HEAD_BYTES = 27
"""The bytes of a batch with its offset, size, magic and, for v2, the last offset's delta."""
_MAGIC_AT = 16
_LAST_DELTA_AT = 23
_OFFSET_AND_SIZE_BYTES = 12
_LEAST_BATCH_BYTES = 26


class PlainReader:
    """A reader of one thread, which keeps the result of its latest `find`.

    `file` is the file of the result, `position` and `size_bytes` its range there, `first_bytes` the size of its first
    batch, which may be larger than the range. All records of the range have smaller offsets than `end_offset`, and
    `magics` are the formats of the segment (`LogSlice.magics`).
    """

    segment: Segment
    file: SharedFile

    def __init__(self, capacity_bytes: int) -> None:
        """Create a reader that can `load` up to ``capacity_bytes``."""
        self.window = bytearray(max(capacity_bytes, _HEADS_BYTES))
        """The bytes that were read last: ``window_bytes`` from ``window_at`` in the file on."""
        self.view = memoryview(self.window)
        self.window_at = 0
        self.window_bytes = 0
        self._descriptor = -1
        self.position = 0
        self.size_bytes = 0
        self.first_bytes = 0
        self.end_offset = 0
        self.magics = 0

    def find(self, log: AppendableLog, offset: int, max_bytes: int, upper_bound: int, at_least_one: bool) -> int:
        """Find what `PartitionLog.read` returns; return a `ReadOutcome`."""
        if log.health.failure is not None or offset > log.log_end_offset or offset < log.log_start_offset:
            return NOT_PLAIN
        bound = min(upper_bound, log.log_end_offset)
        if offset >= bound:
            return EMPTY
        segments = log._segments
        segment = segments.active
        if offset < segment.base_offset:
            segment = segments.all[segments.number_at(offset)]
        if not segment.is_loaded or not self._open(segment):
            return NOT_PLAIN
        if log._stamps_append_time and segment.magics & 1:
            # The receipt times of v0 messages are in the index.
            return NOT_PLAIN
        if offset >= log._tail_offset:
            # The newest append is the last batch.
            start = log._tail_position
            self.first_bytes = segment.size_bytes - start
        else:
            start = self._locate(segment, offset)
            if start < 0:
                return NOT_PLAIN
        first_bytes = self.first_bytes
        end = segment.size_bytes
        if bound < segment.next_offset:
            end = self._locate(segment, bound)
            if end < 0:
                return NOT_PLAIN
        size = min(end - start, max(max_bytes, first_bytes) if at_least_one else max_bytes)
        if size <= 0:
            return EMPTY
        if not self._verify(segment, start, size):
            return NOT_PLAIN
        self.segment = segment
        self.position = start
        self.first_bytes = first_bytes
        self.end_offset = min(bound, segment.next_offset)
        self.magics = segment.magics
        return FOUND

    def cut_incomplete_batch(self) -> bool:
        """Cut the range after its last complete batch, if it has one; return False if `log_reading` must do it."""
        segment = self.segment
        start = self.position
        end = start + self.size_bytes
        position = self._indexed(segment.index, _POSITION_AT, end - 1)
        if position < 0:
            return False
        position = max(start, position)
        while end - position >= _OFFSET_AND_SIZE_BYTES:
            if not self._holds(position, _OFFSET_AND_SIZE_BYTES, end):
                return False
            size = int32_at(self.window, position - self.window_at + 8)
            if size <= 0 or position + _OFFSET_AND_SIZE_BYTES + size > end:
                break
            position += _OFFSET_AND_SIZE_BYTES + size
        if position > start:
            self.size_bytes = position - start
        return True

    def load(self, position: int, size_bytes: int) -> bool:
        """Read bytes of the file into the window; return False if there are fewer, or if they cannot be read."""
        self.window_bytes = 0
        if size_bytes > len(self.window) or read_at(self._descriptor, self.window, 0, size_bytes, position) < 0:
            return False
        self.window_at = position
        self.window_bytes = size_bytes
        return True

    def _open(self, segment: AppendableSegment) -> bool:
        """Take the segment's file, which must be open and the operating system's."""
        file = segment._file
        if file is None:
            return False
        self.file = file
        segment.recently_used = True
        self._descriptor = file.descriptor
        self.window_bytes = 0
        return self._descriptor >= 0

    def _locate(self, segment: AppendableSegment, offset: int) -> int:
        """Return the position of the first batch that ends at or after the offset, as `first_batch_to`, or -1."""
        position = self._indexed(segment.index, _OFFSET_AT, offset)
        end = segment.size_bytes
        if position < 0:
            return _NOWHERE
        while position < end:
            if not self._holds(position, _HEAD_BYTES, end):
                return _NOWHERE
            at = position - self.window_at
            size = _OFFSET_AND_SIZE_BYTES + int32_at(self.window, at + 8)
            last_offset = int64_at(self.window, at)
            if self.window[at + _MAGIC_AT] == 2:
                last_offset += int32_at(self.window, at + _LAST_DELTA_AT)
            if size < _LEAST_BATCH_BYTES or position + size > end:
                return _NOWHERE
            if last_offset >= offset:
                self.first_bytes = size
                return position
            position += size
        return _NOWHERE

    def _holds(self, position: int, size_bytes: int, end: int) -> bool:
        """Return whether the window has these bytes, which it reads if it does not, with others up to ``end``."""
        if self.window_bytes and self.window_at <= position <= self.window_at + self.window_bytes - size_bytes:
            return True
        # After a first look at one batch, further ones follow.
        is_first = self.window_bytes == 0 or not self.window_at <= position <= self.window_at + _HEADS_BYTES
        wanted = min(_FIRST_HEAD_BYTES if is_first else _HEADS_BYTES, end - position)
        return wanted >= size_bytes and self.load(position, wanted)

    def _indexed(self, index: OffsetIndex, field_at: int, value: int) -> int:
        """Return the position of the last batch in the index whose field is at most ``value``, 0 without one.

        That field is the offset, or the position in the log. Returns -1 if the index is not open, or is damaged.
        """
        table = index._table
        if not isinstance(table, OsMappedTable):
            return _NOWHERE
        index.recently_used = True
        last_offset = index._last_offset
        if field_at == _OFFSET_AT and value >= last_offset:
            return index._last_position
        count = index._count
        base_offset = index.base_offset
        if field_at == _OFFSET_AT:
            value -= base_offset
            last = last_offset - base_offset
        else:
            last = index._last_position
        entries = table.memory
        if count < 0 or len(entries) < _HEADER_SIZE + count * _ENTRY_SIZE:
            return _NOWHERE
        return _position_up_to(entries, entries, field_at, value, last, count, base_offset)

    def _verify(self, segment: Segment, start: int, size: int) -> bool:
        """Set the size of the range, of which batches are checked that this process has neither written nor read."""
        self.size_bytes = size
        if start >= segment._trusted_from or (segment._checked_from <= start and start + size <= segment._checked_to):
            return True
        try:
            self.size_bytes = min(size, segment.verify(start, start + size) - start)
        except (OSError, SegmentDamagedError):
            return False
        return True


def _position_up_to(
    entries: mmap, memory: mmap, field_at: int, limit: int, last: int, count: int, base_offset: int
) -> int:
    """Return the position in the last entry whose field is at most ``limit``; -1 if that entry is damaged.

    The search is that of `OffsetIndex._count_up_to`. ``last`` is the field of the last entry; ``memory`` is ``entries``
    once more, as a Python object.
    """
    data = cython.address(entries[0]) if cython.compiled else memoryview(entries)
    low = 0
    high = count
    probe = high * limit // last if 0 <= limit < last else high // 2
    step = 1
    has_lower = False
    has_higher = False
    while low < high:
        at = min(max(probe, low), high - 1)
        if uint32_at(data, _HEADER_SIZE + at * _ENTRY_SIZE + field_at) <= limit:
            low = at + 1
            has_lower = True
            probe = at + step
        else:
            high = at
            has_higher = True
            probe = at - step
        step *= 2
        if has_lower and has_higher:
            probe = (low + high) // 2
    if low == 0:
        return 0
    at = _HEADER_SIZE + (low - 1) * _ENTRY_SIZE
    checksum = crc32(memory[at : at + _CHECKSUM_AT], base_offset & 0xFFFFFFFF) & 0xFFFF | 1
    if checksum != uint32_at(data, at + _CHECKSUM_AT - 2) & 0xFFFF:
        return _NOWHERE
    return uint32_at(data, at + _POSITION_AT)
