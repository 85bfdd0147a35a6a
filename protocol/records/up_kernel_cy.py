"""The hot loop of up-conversion, from messages of formats v0 and v1 to batches of format v2.

Consecutive uncompressed messages become the records of one batch while it stays within `batch_bytes` and their time
stamps are of one type (and, for LogAppendTime, one time: a v2 batch has only one). Built as ``kernel_cy`` is.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from . import cython_stand_in as cython

from .kernel_cy import Stop

if not cython.compiled:
    from .checksum_libraries import crc32c_of
    from .message_bytes import batch_size_at, copy_bytes, int32_at, int64_at, put_uint32, put_v2_head
    from .varint import put_varint, varint_size

COMPILED: bool = cython.compiled
"""Whether this module is compiled."""

AT_END = int(Stop.AT_END)
OUT_IS_FULL = int(Stop.OUT_IS_FULL)
NEEDS_CODEC = int(Stop.NEEDS_CODEC)
BATCH_DONE = int(Stop.BATCH_DONE)
CORRUPT = int(Stop.CORRUPT)

V2_HEADER_SIZE = 61
MAX_OFFSET_DELTA = 0x7FFFFFFF
"""The largest offset delta of a v2 batch, an int32."""
MAX_INT64 = 0x7FFFFFFFFFFFFFFF


class UpConversion:
    """The progress of an up-conversion of stored batches; used like `kernel_cy.DownConversion`.

    `position` is the position of the next batch in the stored bytes, `stop` is the reason why the last call returned.
    `key_at`, `key_length`, `value_at` and `value_length` are those of the last message; negative lengths are nulls. The
    caller sets `receipt_ms`, the log append time of v0 messages; -1 for none (see ``receipts``).
    """

    def __init__(self, first_offset: int, batch_bytes: int, position: int = 0, stops_at_zstd: bool = False) -> None:
        """Begin a conversion without uncompressed messages below `first_offset`, with at most `batch_bytes` a batch.

        With `stops_at_zstd` a v2 batch of zstd is not copied: the caller converts it, as after each NEEDS_CODEC.
        """
        self.to_magic = 2
        self.first_offset = first_offset
        self.batch_bytes = batch_bytes
        self.stops_at_zstd = stops_at_zstd
        self.position = position
        self.stop = AT_END
        self.converted_count = 0
        self.offset = -1
        self.timestamp = -1
        self.is_log_append_time = False
        self.receipt_ms = -1
        self.message_end = 0
        self.key_at = 0
        self.key_length = -1
        self.value_at = 0
        self.value_length = -1
        self.is_measuring = False

    def fill(self, stored: memoryview, end: int, out: memoryview, out_position: int = 0) -> int:
        """Convert messages of `stored` up to `end` into `out` from `out_position` on, until `stop` is set.

        Returns the position in `out` after the last complete batch. After OUT_IS_FULL call again with more room; the
        boundaries of batches do not depend on the room. Raises ValueError for positions outside the buffers.
        """
        self._check(len(stored), end)
        if not 0 <= out_position <= len(out):
            raise ValueError(f"position {out_position} is not in a buffer of {len(out)} bytes")
        self.is_measuring = False
        capacity = len(out)
        if cython.compiled:
            data = cython.address(stored[0])
            target = cython.address(out[0])
        else:
            data, target = stored, out
        with cython.nogil:
            return self._run(data, end, target, out_position, capacity)

    def measure_batch(self, stored: memoryview, end: int) -> int:
        """Skip messages up to `end` until they make a batch; return the size of that batch. Writes nothing.

        Returns 0 if there is none or `stop` is not BATCH_DONE. Raises ValueError as `fill`.
        """
        self._check(len(stored), end)
        self.is_measuring = True
        if cython.compiled:
            data, target = cython.address(stored[0]), cython.NULL
        else:
            data = target = stored
        with cython.nogil:
            return self._run(data, end, target, 0, MAX_INT64)

    def read_message(self, stored: memoryview) -> bool:
        """Read the message at `position` into the fields; return False unless it is complete and uncompressed."""
        self._check(len(stored), len(stored))
        return self._read_next_mergeable(cython.address(stored[0]) if cython.compiled else stored, len(stored))

    def skip_batch(self, stored: memoryview) -> None:
        """Skip the complete batch at `position`, as after NEEDS_CODEC."""
        self._check(len(stored), len(stored))
        size_bytes = batch_size_at(cython.address(stored[0]) if cython.compiled else stored, self.position, len(stored))
        if size_bytes <= 0:
            raise ValueError(f"no complete batch at {self.position}")
        self.position += size_bytes

    def _check(self, stored_bytes: int, end: int) -> None:
        if not 0 <= self.position <= end <= stored_bytes:
            raise ValueError(f"positions {self.position} to {end} are not in a buffer of {stored_bytes} bytes")

    def _run(self, data: memoryview, end: int, out: memoryview, at: int, capacity: int) -> int:
        while True:
            size = batch_size_at(data, self.position, end)
            if size <= 0:
                self.stop = AT_END if size == 0 else CORRUPT
                return at
            magic = data[self.position + 16]
            if magic == 2:
                if self.stops_at_zstd and data[self.position + 22] & 0x07 == 4:
                    self.stop = NEEDS_CODEC
                    return at
                if size > capacity - at:
                    self.stop = OUT_IS_FULL
                    return at
                if not self.is_measuring:
                    copy_bytes(out, at, data, self.position, size)
                self.position += size
                at += size
            elif data[self.position + 17] & 0x07:
                self.stop = NEEDS_CODEC
                return at
            elif not self._read_message(data, size, magic):
                self.stop = CORRUPT
                return at
            elif self.offset < self.first_offset:
                self.position = self.message_end
            else:
                before = at
                at = self._merge(data, end, out, at, capacity)
                if at == before:
                    return at
            if self.is_measuring and at > 0:
                self.stop = BATCH_DONE
                return at

    def _read_message(self, data: memoryview, size: int, magic: int) -> bool:
        """Read the uncompressed message at `position` into the fields of this object.

        Return False if it breaks its format.
        """
        position = self.position
        end = position + size
        self.offset = int64_at(data, position)
        if self.offset < 0:
            return False
        self.timestamp = self.receipt_ms
        self.is_log_append_time = self.receipt_ms >= 0
        key_length_at = position + 18
        if magic == 1:
            self.timestamp = int64_at(data, position + 18)
            if self.timestamp < -1:
                self.timestamp = -1
            self.is_log_append_time = data[position + 17] & 0x08 != 0
            key_length_at = position + 26
        self.key_length = int32_at(data, key_length_at)
        self.key_at = key_length_at + 4
        if self.key_length > end - self.key_at - 4:
            return False
        value_length_at = self.key_at + (max(0, self.key_length))
        self.value_length = int32_at(data, value_length_at)
        self.value_at = value_length_at + 4
        if self.value_length > end - self.value_at:
            return False
        self.message_end = end
        return self.value_at + (max(0, self.value_length)) == end

    def _merge(self, data: memoryview, end: int, out: memoryview, at: int, capacity: int) -> int:
        """Write a batch that begins with the message that was read; return the position in `out` after the batch.

        If the batch does not fit, only `stop` changes, to OUT_IS_FULL.
        """
        start = self.position
        base_offset = self.offset
        base_timestamp = self.timestamp
        max_timestamp = self.timestamp
        is_log_append_time = self.is_log_append_time
        count = 0
        last_offset = base_offset
        size = V2_HEADER_SIZE
        while True:
            body = self._body_size(base_offset, base_timestamp)
            record = varint_size(body) + body
            if count > 0 and size + record > self.batch_bytes:
                break
            if size + record > capacity - at:
                self.position = start
                self.stop = OUT_IS_FULL
                return at
            if not self.is_measuring:
                self._write_record(data, out, at + size, body, base_offset, base_timestamp)
            size += record
            count += 1
            last_offset = self.offset
            if self.timestamp > max_timestamp:
                max_timestamp = self.timestamp
            self.position = self.message_end
            if not self._read_next_mergeable(data, end):
                break
            if self.offset <= last_offset or self.offset - base_offset > MAX_OFFSET_DELTA:
                break
            if self.is_log_append_time != is_log_append_time:
                break
            if is_log_append_time and self.timestamp != max_timestamp:
                break
        if not self.is_measuring:
            put_v2_head(
                out,
                at,
                base_offset,
                size - 12,
                0x08 if is_log_append_time else 0,
                last_offset - base_offset,
                base_timestamp,
                max_timestamp,
                count,
            )
            put_uint32(out, at + 17, crc32c_of(out, at + 21, at + size))
        self.converted_count += count
        return at + size

    def _read_next_mergeable(self, data: memoryview, end: int) -> bool:
        """Read the message at `position` if there is one that could join the batch before it."""
        size = batch_size_at(data, self.position, end)
        if size <= 0:
            return False
        magic = data[self.position + 16]
        if magic == 2 or data[self.position + 17] & 0x07:
            return False
        return self._read_message(data, size, magic)

    def _body_size(self, base_offset: int, base_timestamp: int) -> int:
        """Return the size of the record that was read, without its length field."""
        size = 2 + varint_size(self.timestamp - base_timestamp) + varint_size(self.offset - base_offset)
        size += 1 if self.key_length < 0 else varint_size(self.key_length) + self.key_length
        size += 1 if self.value_length < 0 else varint_size(self.value_length) + self.value_length
        return size

    def _write_record(
        self, data: memoryview, out: memoryview, at: int, body: int, base_offset: int, base_timestamp: int
    ) -> None:
        at = put_varint(out, at, body)
        out[at] = 0
        at = put_varint(out, at + 1, self.timestamp - base_timestamp)
        at = put_varint(out, at, self.offset - base_offset)
        at = put_varint(out, at, self.key_length if self.key_length >= 0 else -1)
        if self.key_length > 0:
            copy_bytes(out, at, data, self.key_at, self.key_length)
            at += self.key_length
        at = put_varint(out, at, self.value_length if self.value_length >= 0 else -1)
        if self.value_length > 0:
            copy_bytes(out, at, data, self.value_at, self.value_length)
            at += self.value_length
        out[at] = 0
