"""The hot loops of down-conversion, from stored batches to messages of an older format, without an object per record.

This is ordinary Python that is also compiled: ``kernel_cy.pxd`` has the C types, and ``message_bytes`` the functions
that read and write bytes, in C and in Python. `implementation` returns which of the two is in use. In the compiled
module `data` and `out` are pointers without bounds checks, so each length read from them is checked explicitly before
its use.
"""

from __future__ import annotations

from enum import IntEnum

try:
    import cython
except ImportError:
    from . import cython_stand_in as cython

if not cython.compiled:
    from .checksum_libraries import crc32_of
    from .message_bytes import (
        batch_size_at,
        copy_bytes,
        int16_at,
        int32_at,
        int64_at,
        put_int32,
        put_uint32,
        put_v0_head,
        put_v1_head,
    )
    from .varint import varint_at

# The C types of these constants are in the .pxd: code without the interpreter's lock cannot read Python objects.
MAX_INT64 = 0x7FFFFFFFFFFFFFFF
MIN_INT64 = ~MAX_INT64

INT32_LAST_SHIFT = 28
INT64_LAST_SHIFT = 63
"""The shift of the last byte of a variable-length integer of that width."""

ANY_LEAD = 1 << 62
"""A lead that no batch loses."""

MALFORMED = -1
"""An invalid position. Reading from it returns it again, so a record needs only one check, at its end."""

COMPILED: bool = cython.compiled
"""Whether this module is compiled."""


class Stop(IntEnum):
    """The reason why a method of `DownConversion` returned."""

    AT_END = 0
    """No complete batch is left."""
    OUT_IS_FULL = 1
    """The next message does not fit into the rest of the output."""
    NEEDS_CODEC = 2
    """The batch at `position` is compressed: the caller converts it and calls `skip_batch`."""
    BATCH_DONE = 3
    """After `measure_batch`: a batch has given messages."""
    CORRUPT = 4
    """The bytes at `position` break the format."""
    BAD_TIMESTAMP = 5
    """A timestamp below -1, which the older formats' builders refuse (IllegalArgumentException in Kafka)."""


AT_END = int(Stop.AT_END)
OUT_IS_FULL = int(Stop.OUT_IS_FULL)
NEEDS_CODEC = int(Stop.NEEDS_CODEC)
BATCH_DONE = int(Stop.BATCH_DONE)
CORRUPT = int(Stop.CORRUPT)
BAD_TIMESTAMP = int(Stop.BAD_TIMESTAMP)


def implementation() -> str:
    """Return 'compiled' or 'pure python'."""
    return "compiled" if COMPILED else "pure python"


def after_field(position: int, length: int, end: int) -> int:
    """Return the position after a field of `length` bytes (negative: a null, without bytes) at `position`."""
    if position < 0 or length > end - position:
        return MALFORMED
    return position + length if length > 0 else position


def after_headers(data: memoryview, position: int, end: int, count: int) -> int:
    """Return the position after `count` record headers."""
    if count < 0 or count > end - position:
        return MALFORMED
    while count > 0 and position >= 0:
        length, position = varint_at(data, position, end, INT32_LAST_SHIFT)
        if length < 0:
            return MALFORMED
        position = after_field(position, length, end)
        length, position = varint_at(data, position, end, INT32_LAST_SHIFT)
        position = after_field(position, length, end)
        count -= 1
    return position


class DownConversion:
    """The progress of a down-conversion of stored batches.

    `position` is the position of the next batch in the stored bytes or, with `records_left`, of the next record of an
    open v2 batch. `stop` is the reason why the last call returned. `converted_count` counts records that changed
    format. `offset` and `timestamp` are those of the last record, `max_timestamp` is the largest of all records. If the
    caller sets `receipt_ms`, the caller converts v0 messages to v1 itself (see ``receipts``); -1 for none.

    The stored bytes are an argument of each call and not kept, so that a mapped file can be closed between calls.
    """

    def __init__(self, to_magic: int, first_offset: int, position: int = 0) -> None:
        """Begin a conversion to `to_magic` (0 or 1); batches that change format lose records below `first_offset`."""
        self.begin(to_magic, first_offset, position)

    def begin(self, to_magic: int, first_offset: int, position: int) -> None:
        """Begin another conversion with this object, as its initialization does."""
        self.begin_unlocked(to_magic, first_offset, position)

    def begin_unlocked(self, to_magic: int, first_offset: int, position: int) -> None:
        """Begin as `begin` does, for compiled callers without the interpreter's lock."""
        self.to_magic = to_magic
        self.first_offset = first_offset
        self.position = position
        self.stop = AT_END
        self.converted_count = 0
        self.records_left = 0
        self.batch_end = 0
        self.base_offset = 0
        self.base_timestamp = 0
        self.log_append_time = -1
        self.is_log_append_time = False
        self.inner_base_offset = 0
        self.attributes = 0
        self.offset = -1
        self.timestamp = -1
        self.max_timestamp = -1
        self.record_end = 0
        self.key_at = 0
        self.key_length = 0
        self.value_at = 0
        self.value_length = 0
        self.receipt_ms = -1
        self.is_measuring = False
        self.lead = ANY_LEAD

    def fill(self, stored: memoryview, end: int, out: memoryview, out_position: int = 0) -> int:
        """Convert batches of `stored` up to `end` into `out` from `out_position` on, until there is a reason to `stop`.

        Returns the position in `out` after the last complete message. After OUT_IS_FULL call again with more room.
        Raises ValueError for positions outside the buffers.
        """
        self._check(len(stored), end)
        if not 0 <= out_position <= len(out):
            raise ValueError(f"position {out_position} is not in a buffer of {len(out)} bytes")
        capacity = len(out)
        if cython.compiled:
            data = cython.address(stored[0])
            target = cython.address(out[0])
        else:
            data, target = stored, out
        with cython.nogil:
            return self.fill_unchecked(data, end, target, out_position, capacity)

    def fill_unchecked(self, stored: memoryview, end: int, out: memoryview, out_position: int, capacity: int) -> int:
        """Convert as `fill` does, for compiled callers who have checked the positions."""
        self.is_measuring = False
        return self._run(stored, end, out, out_position, capacity)

    def measure_batch(self, stored: memoryview, end: int) -> int:
        """Skip batches up to `end` until one gives messages; return the size of these messages. Writes nothing.

        Returns 0 if there is none or `stop` is not BATCH_DONE; errors are those that `fill` would find.
        Raises ValueError for positions outside the buffer.
        """
        return self.measure_lagging(stored, end, ANY_LEAD)

    def measure_lagging(self, stored: memoryview, end: int, lead: int) -> int:
        """Skip batches up to `end` until their messages are as large as the batches; return the messages' size.

        `lead` is how much larger the messages before this buffer were than their batches. `stop` is BATCH_DONE if the
        batches have been caught up with. Errors are those that `fill` would find. Raises ValueError for positions
        outside the buffer.
        """
        self._check(len(stored), end)
        self.is_measuring = True
        self.lead = lead
        if cython.compiled:
            data, target = cython.address(stored[0]), cython.NULL
        else:
            data = target = stored
        with cython.nogil:
            return self._run(data, end, target, 0, MAX_INT64)

    def skip_batch(self, stored: memoryview) -> None:
        """Skip the complete batch at `position`, as after NEEDS_CODEC."""
        self._check(len(stored), len(stored))
        data = cython.address(stored[0]) if cython.compiled else stored
        size_bytes = batch_size_at(data, self.position, len(stored))
        if size_bytes <= 0:
            raise ValueError(f"no complete batch at {self.position}")
        self.position += size_bytes

    def open_records(
        self,
        count: int,
        end: int,
        base_offset: int,
        base_timestamp: int,
        log_append_time: int,
        is_log_append_time: bool,
        inner_base_offset: int,
    ) -> None:
        """Begin with the records of a decompressed v2 batch, from `position` to `end`.

        Their messages get offsets relative to `inner_base_offset`.
        """
        if count < 0 or base_offset < 0:
            raise ValueError(f"{count} records from offset {base_offset}")
        self.records_left = count
        self.batch_end = end
        self.base_offset = base_offset
        self.base_timestamp = base_timestamp
        self.log_append_time = log_append_time
        self.is_log_append_time = is_log_append_time
        self.inner_base_offset = inner_base_offset
        self.attributes = 0x08 if is_log_append_time and self.to_magic == 1 else 0

    def read_record(self, stored: memoryview) -> bool:
        """Read the next record of the open batch into `offset`, `timestamp`, `key_at` and so on.

        Return False if it is malformed.
        """
        self._check(len(stored), len(stored))
        if self.records_left <= 0 or self.batch_end > len(stored):
            return False
        return self._read_record(cython.address(stored[0]) if cython.compiled else stored)

    def write_record(self, data: memoryview, out: memoryview, at: int, capacity: int, is_first: bool) -> int:
        """Convert the next record of the open batch; return the size of its message.

        `is_first` makes its offset the one that offsets in wrappers of v1 count from. Returns MALFORMED for a record
        that is malformed, has no valid timestamp, or does not fit. For compiled callers who have checked the buffers.
        """
        if self.records_left <= 0 or not self._read_record(data) or self.timestamp < -1:
            return MALFORMED
        if is_first and self.to_magic == 1:
            self.inner_base_offset = self.offset
        size = self._message_size()
        if size > capacity - at:
            return MALFORMED
        self._write_message(data, out, at, size)
        self._skip_record()
        return size

    def skip_record(self) -> None:
        """Skip the record that was read."""
        self._skip_record()

    def _skip_record(self) -> None:
        self.position = self.record_end
        self.records_left -= 1
        self.converted_count += 1
        if self.timestamp > self.max_timestamp:
            self.max_timestamp = self.timestamp

    def count_message(self) -> None:
        """Count a v1 message that the caller converted."""
        self.converted_count += 1

    def _check(self, stored_bytes: int, end: int) -> None:
        if not 0 <= self.position <= end <= stored_bytes:
            raise ValueError(f"positions {self.position} to {end} are not in a buffer of {stored_bytes} bytes")

    def _run(self, data: memoryview, end: int, out: memoryview, at: int, capacity: int) -> int:
        while True:
            if self.records_left > 0:
                at = self._convert_records(data, end, out, at, capacity)
                if self.records_left > 0:
                    return at
                if self.position != self.batch_end:
                    self.stop = CORRUPT
                    return at
                if self.is_measuring and at > 0 and at + self.lead >= self.position:
                    self.stop = BATCH_DONE
                    return at
            size = batch_size_at(data, self.position, end)
            if size <= 0:
                self.stop = AT_END if size == 0 else CORRUPT
                return at
            magic = data[self.position + 16]
            if magic == 2:
                if not self._open_batch(data, size):
                    return at
            else:
                before = at
                at = self._convert_message(data, size, magic, out, at, capacity)
                if at < 0:
                    return before
                if self.is_measuring and at > 0 and at + self.lead >= self.position:
                    self.stop = BATCH_DONE
                    return at

    def _open_batch(self, data: memoryview, size: int) -> bool:
        """Open the v2 batch at `position` or skip it; return False if `stop` was set."""
        position = self.position
        attributes = int16_at(data, position + 21)
        if attributes & 0x20:
            self.position += size
            return True
        if attributes & 0x07:
            self.stop = NEEDS_CODEC
            return False
        if not self.open_header(data, position):
            self.stop = CORRUPT
            return False
        self.batch_end = position + size
        self.position = self.batch_end if self.records_left == 0 else position + 61
        return True

    def open_header(self, data: memoryview, position: int) -> bool:
        """Begin with the records of the v2 batch whose header is at `position`; return False for an impossible header.

        The caller has checked the bounds, and sets `batch_end`.
        """
        count = int32_at(data, position + 57)
        base_offset = int64_at(data, position)
        if count < 0 or base_offset < 0:
            return False
        self.records_left = count
        self.base_offset = base_offset
        self.base_timestamp = int64_at(data, position + 27)
        self.log_append_time = int64_at(data, position + 35)
        self.is_log_append_time = int16_at(data, position + 21) & 0x08 != 0
        self.inner_base_offset = 0
        self.attributes = 0x08 if self.is_log_append_time and self.to_magic == 1 else 0
        return True

    def _convert_records(self, data: memoryview, end: int, out: memoryview, at: int, capacity: int) -> int:
        """Convert records of the open batch while they fit; return the position in `out` after them."""
        if self.batch_end > end:
            self.stop = AT_END
            return at
        while self.records_left > 0:
            if not self._read_record(data):
                self.stop = CORRUPT
                return at
            if self.offset >= self.first_offset:
                if self.timestamp < -1:
                    self.stop = BAD_TIMESTAMP
                    return at
                size = self._message_size()
                if size > capacity - at:
                    self.stop = OUT_IS_FULL
                    return at
                if not self.is_measuring:
                    self._write_message(data, out, at, size)
                at += size
                self.converted_count += 1
                if self.timestamp > self.max_timestamp:
                    self.max_timestamp = self.timestamp
            self.position = self.record_end
            self.records_left -= 1
        return at

    def _read_record(self, data: memoryview) -> bool:
        """Read the record at `position` into the fields of this object; return False if it breaks the format."""
        size, body = varint_at(data, self.position, self.batch_end, INT32_LAST_SHIFT)
        if body < 0 or size < 0 or size > self.batch_end - body:
            return False
        end = body + size
        timestamp_delta, position = varint_at(data, body + 1, end, INT64_LAST_SHIFT)
        offset_delta, position = varint_at(data, position, end, INT32_LAST_SHIFT)
        self.key_length, self.key_at = varint_at(data, position, end, INT32_LAST_SHIFT)
        position = after_field(self.key_at, self.key_length, end)
        self.value_length, self.value_at = varint_at(data, position, end, INT32_LAST_SHIFT)
        position = after_field(self.value_at, self.value_length, end)
        header_count, position = varint_at(data, position, end, INT32_LAST_SHIFT)
        if header_count != 0:
            position = after_headers(data, position, end, header_count)
        if position != end:
            return False
        if offset_delta > MAX_INT64 - self.base_offset:
            return False
        self.offset = self.base_offset + offset_delta
        if self.is_log_append_time:
            self.timestamp = self.log_append_time
        else:
            if timestamp_delta > 0 and self.base_timestamp > MAX_INT64 - timestamp_delta:
                return False
            if timestamp_delta < 0 and self.base_timestamp < MIN_INT64 - timestamp_delta:
                return False
            self.timestamp = self.base_timestamp + timestamp_delta
        self.record_end = end
        return True

    def _message_size(self) -> int:
        """Return the size of the message of the record that was read."""
        size = 26 if self.to_magic == 0 else 34
        if self.key_length > 0:
            size += self.key_length
        if self.value_length > 0:
            size += self.value_length
        return size

    def _write_message(self, data: memoryview, out: memoryview, at: int, size: int) -> None:
        """Write the record that was read as a message of `size` bytes, which must fit."""
        offset = self.offset - self.inner_base_offset
        key_length = self.key_length if self.key_length >= 0 else -1
        value_length = self.value_length if self.value_length >= 0 else -1
        if self.to_magic == 0:
            put_v0_head(out, at, offset, size - 12, self.attributes, key_length)
            field = at + 22
        else:
            put_v1_head(out, at, offset, size - 12, self.attributes, self.timestamp, key_length)
            field = at + 30
        if key_length > 0:
            copy_bytes(out, field, data, self.key_at, key_length)
            field += key_length
        put_int32(out, field, value_length)
        if value_length > 0:
            copy_bytes(out, field + 4, data, self.value_at, value_length)
        put_uint32(out, at + 12, crc32_of(out, at + 16, at + size))

    def _convert_message(self, data: memoryview, size: int, magic: int, out: memoryview, at: int, capacity: int) -> int:
        """Copy the v0 or v1 message at `position`, or convert it from v1 to v0; return MALFORMED if `stop` was set."""
        position = self.position
        attributes = data[position + 17]
        if attributes & 0x07 and (magic > self.to_magic or attributes & 0x10):
            self.stop = NEEDS_CODEC
            return MALFORMED
        if magic < self.to_magic and self.receipt_ms >= 0:
            self.stop = NEEDS_CODEC
            return MALFORMED
        if magic > self.to_magic:
            return self._convert_v1_message(data, size, out, at, capacity)
        if size > capacity - at:
            self.stop = OUT_IS_FULL
            return MALFORMED
        if not self.is_measuring:
            copy_bytes(out, at, data, position, size)
        self.position += size
        return at + size

    def _convert_v1_message(self, data: memoryview, size: int, out: memoryview, at: int, capacity: int) -> int:
        """Convert the uncompressed v1 message at `position` to v0, which has no timestamp."""
        position = self.position
        end = position + size
        value_length_at = after_field(position + 30, int32_at(data, position + 26), end)
        if value_length_at < 0 or end - value_length_at < 4:
            self.stop = CORRUPT
            return MALFORMED
        if after_field(value_length_at + 4, int32_at(data, value_length_at), end) != end:
            self.stop = CORRUPT
            return MALFORMED
        self.offset = int64_at(data, position)
        if self.offset >= self.first_offset:
            if int64_at(data, position + 18) < -1:
                self.stop = BAD_TIMESTAMP
                return MALFORMED
            if size - 8 > capacity - at:
                self.stop = OUT_IS_FULL
                return MALFORMED
            if not self.is_measuring:
                put_v0_head(out, at, self.offset, size - 20, 0, int32_at(data, position + 26))
                copy_bytes(out, at + 22, data, position + 30, size - 30)
                put_uint32(out, at + 12, crc32_of(out, at + 16, at + size - 8))
            at += size - 8
            self.converted_count += 1
        self.position += size
        return at


def survey(stored: memoryview, position: int, end: int, limit_bytes: int, to_magic: int) -> tuple[int, int]:
    """Return the position after the batches of a chunk and the work that their conversion to `to_magic` needs.

    A chunk (KIP-283) has at least one complete batch, then as many as fit into `limit_bytes`. `work` has bit 0 if a
    batch must be converted, and bit n if such a batch, or one of format v2 for readers of that format, has codec n. The
    survey ends before bytes that break the format, with bit 0 set, so that the conversion reports them.
    """
    if not 0 <= position <= end <= len(stored):
        raise ValueError(f"positions {position} to {end} are not in a buffer of {len(stored)} bytes")
    data = cython.address(stored[0]) if cython.compiled else stored
    return survey_unchecked(data, position, end, limit_bytes, to_magic)


def survey_unchecked(data: memoryview, position: int, end: int, limit_bytes: int, to_magic: int) -> tuple[int, int]:
    """Return what `survey` does, for compiled callers who have checked the positions."""
    start = position
    work = 0
    while True:
        size = batch_size_at(data, position, end)
        if size == 0 or (position > start and size > limit_bytes - (position - start)):
            return position, work
        if size < 0:
            return position, work | 1
        work |= work_for_batch(data, position, to_magic)
        position += size


def work_for_batch(data: memoryview, position: int, to_magic: int) -> int:
    """Return the bits of `survey` for one batch."""
    magic = data[position + 16]
    attributes = int16_at(data, position + 21) if magic == 2 else data[position + 17]
    if to_magic == 2:
        codec = attributes & 0x07
        if magic < 2:
            return 1 | 1 << codec
        return 1 << codec if codec else 0
    if magic == 2 and attributes & 0x20:
        return 1
    codec = attributes & 0x07
    if magic > to_magic or (codec != 0 and attributes & 0x10 and magic < 2):
        return 1 | 1 << codec
    return 0
