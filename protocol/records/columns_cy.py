"""Converting stored batches to columns in Arrow's layout, without an object per record.

This is ordinary Python that is also compiled, like ``kernel_cy``: ``columns_cy.pxd`` has the C types. In the compiled
module `data` is a pointer without bounds checks, so each length read from it is checked explicitly before its use, and
each column has room for the largest result of the current batch: a record has at least seven bytes, a header two.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from . import cython_stand_in as cython

from .kernel_cy import Stop

if not cython.compiled:
    from .checksum_libraries import crc32_of, crc32c_of
    from .message_bytes import batch_size_at, copy_bytes, int16_at, int32_at, int64_at
    from .varint import varint_at

COMPILED: bool = cython.compiled
"""Whether this module is compiled."""

AT_END = int(Stop.AT_END)
OUT_IS_FULL = int(Stop.OUT_IS_FULL)
NEEDS_CODEC = int(Stop.NEEDS_CODEC)
CORRUPT = int(Stop.CORRUPT)
BAD_TIMESTAMP = int(Stop.BAD_TIMESTAMP)

INT32_LAST_SHIFT = 28
INT64_LAST_SHIFT = 63
MAX_INT64 = 0x7FFFFFFFFFFFFFFF
MIN_INT64 = ~MAX_INT64
MAX_MILLIS = 9223372036854775
"""The largest timestamp in milliseconds that a column of microseconds can hold."""
UINT32_MAX = 0xFFFFFFFF
V2_HEADER_SIZE = 61
MALFORMED = -1


class BytesColumn:
    """A column of nullable byte strings in Arrow's layout: ends, bytes, and validity bits.

    `ends` (int32) has room for one entry more than there are strings; `valid` has a bit for each string.
    """

    def __init__(self, ends: memoryview, data: memoryview, valid: memoryview) -> None:
        self.ends = ends
        self.data = data
        self.valid = valid
        self.count = 0
        self.size_bytes = 0
        self.null_count = 0
        ends[0] = 0

    def append(self, source: memoryview, position: int, length: int) -> None:
        """Append `length` bytes of `source` from `position` on, or a null if `length` is negative.

        The caller ensures the room.
        """
        bit = self.count & 7
        if bit == 0:
            self.valid[self.count >> 3] = 0
        if length < 0:
            self.null_count += 1
        else:
            self.valid[self.count >> 3] |= 1 << bit
            if length > 0:
                if cython.compiled:
                    copy_bytes(cython.address(self.data[0]), self.size_bytes, source, position, length)
                else:
                    copy_bytes(self.data, self.size_bytes, source, position, length)
                self.size_bytes += length
        self.count += 1
        self.ends[self.count] = self.size_bytes


class RecordColumns:
    """Columns of the records of one partition, filled batch by batch until a column is full.

    `fixed` has six columns with room for equally many rows: offsets (int64), timestamps in microseconds
    (int64), timestamp types, magics, codec ids (int32 each) and producer ids (int64). `byte_columns` are keys, values,
    header keys and header values, each with room for `byte_capacity` bytes, or empty if not requested;
    `header_ends` and `header_valid` are the ends and the validity bits of the lists of headers.

    Only records from `first_offset` up to `end_offset` (exclusive) are added, and only batches whose largest timestamp
    is at least `least_timestamp` (milliseconds; MIN_INT64 for all). After CORRUPT or BAD_TIMESTAMP the columns are
    invalid.

    Offsets are not covered by CRCs, so they must increase: a batch below `next_offset`, the offset after the last
    batch, is CORRUPT, and with `is_exact` also a batch without an offset between `first_offset` and `end_offset`.
    """

    def __init__(
        self,
        fixed: tuple[memoryview, ...],
        byte_columns: tuple[BytesColumn, ...],
        header_ends: memoryview,
        header_valid: memoryview,
        byte_capacity: int,
        first_offset: int,
        end_offset: int,
        least_timestamp: int = MIN_INT64,
        checks_crc: bool = True,
        is_exact: bool = False,
        next_offset: int = 0,
    ) -> None:
        self.offsets, self.timestamps, self.timestamp_types, self.magics, self.codecs, self.producer_ids = fixed
        self.has_contents = len(byte_columns) > 0
        if self.has_contents:
            self.keys, self.values, self.header_keys, self.header_values = byte_columns
        self.header_ends = header_ends
        self.header_valid = header_valid
        self.header_ends[0] = 0
        self.row_capacity = len(self.offsets)
        self.bytes_left = byte_capacity
        self.first_offset = first_offset
        self.end_offset = end_offset
        self.least_timestamp = least_timestamp
        self.checks_crc = checks_crc
        self.is_exact = is_exact
        self.next_offset = next_offset
        self.rows = 0
        self.headerless_rows = 0
        self.stop = AT_END
        self.cursor = 0
        self.magic = 0
        self.codec = 0
        self.timestamp_type = 0
        self.producer_id = -1
        self.base_offset = 0
        self.base_timestamp = 0
        self.append_time = 0

    def fill(self, stored: memoryview, position: int, end: int) -> int:
        """Add the batches of `stored` from `position` up to `end`; return the position of the first batch not added.

        `stop` has the reason: AT_END, OUT_IS_FULL, NEEDS_CODEC (see `add_records`), CORRUPT (also for a wrong CRC) or
        BAD_TIMESTAMP. Control batches and batches out of range are skipped. Raises ValueError for bad positions.
        """
        if not 0 <= position <= end <= len(stored):
            raise ValueError(f"positions {position} to {end} are not in a buffer of {len(stored)} bytes")
        if position == end:
            self.stop = AT_END
            return position
        data = cython.address(stored[0]) if cython.compiled else stored
        with cython.nogil:
            return self._fill(data, position, end)

    def add_records(self, stored: memoryview, position: int, body: memoryview) -> bool:
        """Add the records of the compressed v2 batch at `position`, with the decompressed `body`.

        Returns False if they do not fit (`stop` is OUT_IS_FULL) or break the format (CORRUPT, BAD_TIMESTAMP).
        """
        data = cython.address(stored[position]) if cython.compiled else stored[position:]
        if batch_size_at(data, 0, len(stored) - position) <= 0 or data[16] != 2:
            raise ValueError(f"no complete batch of format v2 at {position}")
        self._open_v2(data, 0)
        count = int32_at(data, 57)
        if count <= 0 or len(body) == 0:
            self.stop = AT_END if count == 0 else CORRUPT
            return count == 0
        inflated = cython.address(body[0]) if cython.compiled else body
        if not self._has_room(count, len(body)) or not self._add_records(inflated, 0, len(body), count):
            return False
        self.next_offset = self.base_offset + int32_at(data, 23) + 1
        return True

    def add_messages(
        self,
        inner: memoryview,
        base_offset: int,
        is_numbered: bool,
        append_time: int,
        has_append_time: bool,
        codec: int,
    ) -> bool:
        """Add the messages of a decompressed v0 or v1 set.

        Their offsets are `base_offset` plus the stored ones, or plus 0, 1, 2 ... if `is_numbered`. With
        `has_append_time` all have the timestamp `append_time`. Returns False as `add_records` does.
        """
        if len(inner) == 0:
            self.stop = CORRUPT
            return False
        if not self._has_room(len(inner) // 26, len(inner)):
            return False
        data = cython.address(inner[0]) if cython.compiled else inner
        self.codec = codec
        position = 0
        index = 0
        while True:
            size = batch_size_at(data, position, len(inner))
            if size == 0:
                self.stop = AT_END
                return True
            if size < 0 or data[position + 16] > 1 or data[position + 17] & 0x07:
                self.stop = CORRUPT
                return False
            stored_offset = index if is_numbered else int64_at(data, position)
            if not self._add_message(data, position, size, base_offset + stored_offset, append_time, has_append_time):
                return False
            self.next_offset = base_offset + stored_offset + 1
            position += size
            index += 1

    def _fill(self, data: memoryview, position: int, end: int) -> int:
        while True:
            size = batch_size_at(data, position, end)
            if size <= 0:
                self.stop = AT_END if size == 0 else CORRUPT
                return position
            if data[position + 16] == 2:
                is_taken = self._take_batch(data, position, size)
            else:
                is_taken = self._take_message(data, position, size)
            if not is_taken:
                return position
            position += size

    def _take_batch(self, data: memoryview, position: int, size: int) -> bool:
        """Add or skip the v2 batch at `position`; return False if `stop` was set."""
        attributes = int16_at(data, position + 21)
        count = int32_at(data, position + 57)
        delta = int32_at(data, position + 23)
        base_offset = int64_at(data, position)
        if count < 0 or delta < 0 or base_offset < self.next_offset or base_offset >= MAX_INT64 - delta:
            self.stop = CORRUPT
            return False
        last_offset = base_offset + delta
        if last_offset < self.first_offset or base_offset >= self.end_offset:
            return self._step_over(last_offset)
        if self.checks_crc and not self._has_crc(data, position + 17, crc32c_of(data, position + 21, position + size)):
            self.stop = CORRUPT
            return False
        if attributes & 0x20 or count == 0 or int64_at(data, position + 35) < self.least_timestamp:
            self.next_offset = last_offset + 1
            return True
        if attributes & 0x07:
            self.stop = NEEDS_CODEC
            return False
        if not self._has_room(count, size - V2_HEADER_SIZE):
            return False
        self._open_v2(data, position)
        if not self._add_records(data, position + V2_HEADER_SIZE, position + size, count):
            return False
        self.next_offset = last_offset + 1
        return True

    def _step_over(self, last_offset: int) -> bool:
        """Skip a batch that has no offset in range; return False if such a batch is CORRUPT."""
        if self.is_exact:
            self.stop = CORRUPT
            return False
        self.next_offset = last_offset + 1
        return True

    def _has_crc(self, data: memoryview, position: int, crc: int) -> bool:
        return int32_at(data, position) & UINT32_MAX == crc

    def _open_v2(self, data: memoryview, position: int) -> None:
        """Read the fields of the v2 header at `position` that apply to all of its records."""
        attributes = int16_at(data, position + 21)
        self.magic = 2
        self.codec = attributes & 0x07
        self.timestamp_type = 1 if attributes & 0x08 else 0
        self.base_offset = int64_at(data, position)
        self.base_timestamp = int64_at(data, position + 27)
        self.append_time = int64_at(data, position + 35)
        self.producer_id = int64_at(data, position + 43)

    def _has_room(self, count: int, size_bytes: int) -> bool:
        """Return whether `count` records of `size_bytes` in total fit; if so, reserve the bytes."""
        if count > self.row_capacity - self.rows or size_bytes > self.bytes_left:
            self.stop = OUT_IS_FULL
            return False
        self.bytes_left -= size_bytes
        return True

    def _add_records(self, data: memoryview, position: int, end: int, count: int) -> bool:
        """Add `count` v2 records, which must fill the bytes from `position` to `end`."""
        for _ in range(count):
            size = self._varint(data, position, end, INT32_LAST_SHIFT)
            if self.cursor < 0 or size < 0 or size > end - self.cursor:
                self.stop = CORRUPT
                return False
            position = self.cursor + size
            if not self._add_record(data, self.cursor, position):
                return False
        if position != end:
            self.stop = CORRUPT
            return False
        return True

    def _add_record(self, data: memoryview, position: int, end: int) -> bool:
        """Add the v2 record whose fields are from `position` (its attributes) to `end`."""
        timestamp_delta = self._varint(data, position + 1, end, INT64_LAST_SHIFT)
        offset_delta = self._varint(data, self.cursor, end, INT32_LAST_SHIFT)
        key_length = self._varint(data, self.cursor, end, INT32_LAST_SHIFT)
        key_at = self.cursor
        self._skip(key_length, end)
        value_length = self._varint(data, self.cursor, end, INT32_LAST_SHIFT)
        value_at = self.cursor
        self._skip(value_length, end)
        header_count = self._varint(data, self.cursor, end, INT32_LAST_SHIFT)
        if self.cursor < 0 or offset_delta > MAX_INT64 - self.base_offset:
            self.stop = CORRUPT
            return False
        offset = self.base_offset + offset_delta
        if offset < self.first_offset or offset >= self.end_offset:
            return True
        timestamp = self.append_time
        if self.timestamp_type == 0:
            if timestamp_delta > MAX_MILLIS or timestamp_delta < -MAX_MILLIS:
                self.stop = BAD_TIMESTAMP
                return False
            timestamp = self.base_timestamp
            if -MAX_MILLIS <= timestamp <= MAX_MILLIS:
                timestamp += timestamp_delta
        if not self._add_fixed(offset, timestamp):
            return False
        if self.has_contents:
            self.keys.append(data, key_at, key_length)
            self.values.append(data, value_at, value_length)
            return self._add_headers(data, end, header_count)
        return True

    def _add_fixed(self, offset: int, timestamp: int) -> bool:
        """Begin a row."""
        if timestamp > MAX_MILLIS or timestamp < -MAX_MILLIS:
            self.stop = BAD_TIMESTAMP
            return False
        row = self.rows
        self.offsets[row] = offset
        self.timestamps[row] = timestamp * 1000
        self.timestamp_types[row] = self.timestamp_type
        self.magics[row] = self.magic
        self.codecs[row] = self.codec
        self.producer_ids[row] = self.producer_id
        self.rows = row + 1
        return True

    def _add_headers(self, data: memoryview, end: int, count: int) -> bool:
        """Add the `count` headers at `cursor` to the current row; no headers give a null, as in Spark."""
        row = self.rows - 1
        if row & 7 == 0:
            self.header_valid[row >> 3] = 0
        if count == 0:
            self.headerless_rows += 1
        else:
            self.header_valid[row >> 3] |= 1 << (row & 7)
        if count < 0 or count > end - self.cursor:
            self.stop = CORRUPT
            return False
        while count > 0:
            length = self._varint(data, self.cursor, end, INT32_LAST_SHIFT)
            key_at = self.cursor
            self._skip(length, end)
            value_length = self._varint(data, self.cursor, end, INT32_LAST_SHIFT)
            value_at = self.cursor
            self._skip(value_length, end)
            if self.cursor < 0 or length < 0:
                self.stop = CORRUPT
                return False
            self.header_keys.append(data, key_at, length)
            self.header_values.append(data, value_at, value_length)
            count -= 1
        self.header_ends[row + 1] = self.header_keys.count
        if self.cursor != end:
            self.stop = CORRUPT
            return False
        return True

    def _take_message(self, data: memoryview, position: int, size: int) -> bool:
        """Add or skip the v0 or v1 message at `position`; return False if `stop` was set."""
        offset = int64_at(data, position)
        if offset < self.next_offset or offset == MAX_INT64:
            self.stop = CORRUPT
            return False
        is_wrapper = data[position + 17] & 0x07 != 0
        # A wrapper has the offset of its last message; its first offset may be lower.
        if offset < self.first_offset or (offset >= self.end_offset and not is_wrapper):
            return self._step_over(offset)
        if self.checks_crc and not self._has_crc(data, position + 12, crc32_of(data, position + 16, position + size)):
            self.stop = CORRUPT
            return False
        if is_wrapper:
            self.stop = NEEDS_CODEC
            return False
        if data[position + 16] == 1 and int64_at(data, position + 18) < self.least_timestamp:
            self.next_offset = offset + 1
            return True
        self.codec = 0
        if not self._has_room(1, size) or not self._add_message(data, position, size, offset, 0, False):
            return False
        self.next_offset = offset + 1
        return True

    def _add_message(
        self, data: memoryview, position: int, size: int, offset: int, append_time: int, has_append_time: bool
    ) -> bool:
        """Add an uncompressed v0 or v1 message, for which there is room."""
        end = position + size
        self.magic = data[position + 16]
        self.producer_id = -1
        timestamp = -1
        self.timestamp_type = -1
        fields_at = position + 18
        if self.magic == 1:
            self.timestamp_type = 1 if data[position + 17] & 0x08 else 0
            timestamp = int64_at(data, position + 18)
            fields_at = position + 26
        if has_append_time:
            self.timestamp_type = 1
            timestamp = append_time
        key_length = int32_at(data, fields_at)
        key_at = fields_at + 4
        self.cursor = key_at
        self._skip(key_length, end - 4)
        if self.cursor < 0 or self.cursor > end - 4:
            self.stop = CORRUPT
            return False
        value_length = int32_at(data, self.cursor)
        value_at = self.cursor + 4
        if value_length > end - value_at:
            self.stop = CORRUPT
            return False
        if offset < self.first_offset or offset >= self.end_offset:
            return True
        if not self._add_fixed(offset, timestamp):
            return False
        if self.has_contents:
            self.keys.append(data, key_at, key_length)
            self.values.append(data, value_at, value_length)
            self.cursor = end
            return self._add_headers(data, end, 0)
        return True

    def _varint(self, data: memoryview, position: int, end: int, last_shift: int) -> int:
        """Return the zig-zag integer at `position`, and set `cursor` after it; below 0 if it is malformed."""
        value, self.cursor = varint_at(data, position, end, last_shift)
        return value

    def _skip(self, length: int, end: int) -> None:
        """Move `cursor` after a field of `length` bytes (negative: a null, which has no bytes)."""
        if self.cursor < 0 or length > end - self.cursor:
            self.cursor = MALFORMED
        elif length > 0:
            self.cursor += length


def survey_messages(inner: memoryview) -> tuple[int, int]:
    """Return the number of complete messages in a decompressed set, and the stored offset of the last (-1: none)."""
    count = 0
    last_offset = -1
    if len(inner) == 0:
        return count, last_offset
    data = cython.address(inner[0]) if cython.compiled else inner
    position = 0
    while True:
        size = batch_size_at(data, position, len(inner))
        if size <= 0:
            return count, last_offset
        last_offset = int64_at(data, position)
        count += 1
        position += size
