"""Columns in, batches of format v2 out, no object per record: the way back of ``columns_cy``.

Columns are in Arrow's own layout. Ordinary Python that is also compiled, as ``kernel_cy`` is: ``batching_cy.pxd`` gives
the C types. Ends of byte strings come from elsewhere, so they are checked here, by hand, before anything is read.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from . import cython_stand_in as cython

if not cython.compiled:
    from .message_bytes import copy_bytes, crc32c_of, put_uint32, put_v2_head, put_varint, varint_size
    from .murmur2_cy import murmur2

COMPILED: bool = cython.compiled
"""Whether this is the compiled module."""

V2_HEADER_SIZE = 61
LEADER_EPOCH_AT = 12
CRC_AT = 17
ATTRIBUTES_AT = 21
LEAST_CAPACITY = 4096
MAX_BATCH_BYTES = 0x7FFFFFFF
POSITIVE = 0x7FFFFFFF


class BytesRows:
    """Byte strings, or lists, that may be null, as Arrow lays them out.

    String n lies in `data` from `ends[n]` to `ends[n + 1]` (int32); list n has these elements. It is null if bit
    `first_bit` + n of `valid` is 0; with an empty `valid` none is.
    """

    def __init__(self, ends: memoryview, data: memoryview, valid: memoryview, first_bit: int) -> None:
        if len(valid) and len(valid) * 8 < first_bit + len(ends) - 1:
            raise ValueError("fewer validity bits than byte strings")
        self.ends = ends
        self.data = data
        self.valid = valid
        self.first_bit = first_bit
        self.has_nulls = len(valid) > 0

    def size_at(self, row: int, limit: int) -> int:
        """Bytes of string `row`, or elements of a list; -1 for a null. Raises ValueError if it goes beyond `limit`."""
        if self.has_nulls:
            bit = self.first_bit + row
            if not self.valid[bit >> 3] >> (bit & 7) & 1:
                return -1
        start = self.ends[row]
        end = self.ends[row + 1]
        if not 0 <= start <= end <= limit:
            raise ValueError(f"row {row} from {start} to {end} in {limit}")
        return end - start


class RecordRows:
    """Columns of records that go to one topic.

    `timestamps` (int64, milliseconds) and `partitions` (int32, negative: by the key) have an entry a row. Of headers,
    `header_lists` says which elements of `header_keys` and `header_values` a row has.
    """

    def __init__(
        self,
        timestamps: memoryview,
        partitions: memoryview,
        keys: BytesRows,
        values: BytesRows,
        header_lists: BytesRows,
        header_keys: BytesRows,
        header_values: BytesRows,
    ) -> None:
        self.count = len(timestamps)
        self.timestamps = timestamps
        self.partitions = partitions
        self.keys = keys
        self.values = values
        self.header_lists = header_lists
        self.header_keys = header_keys
        self.header_values = header_values
        self.header_count = min(len(self.header_keys.ends), len(self.header_values.ends)) - 1
        ends = self.count + 1
        if (
            len(self.partitions) != self.count
            or len(self.keys.ends) != ends
            or len(self.values.ends) != ends
            or len(self.header_lists.ends) != ends
        ):
            raise ValueError("columns of different lengths")

    def header_size(self, row: int) -> int:
        """How many headers a row has."""
        return max(self.header_lists.size_at(row, self.header_count), 0)


class GrowingBatch:
    """Records of one partition that will be a batch; `out` has them behind room for a header, `size_bytes` in all."""

    def __init__(self, capacity: int) -> None:
        self.out = memoryview(bytearray(max(capacity, LEAST_CAPACITY)))
        self.size_bytes = V2_HEADER_SIZE
        self.record_count = 0
        self.base_timestamp = 0
        self.max_timestamp = 0

    def uncompressed(self) -> memoryview:
        """The batch's bytes, without a codec or a producer, its records numbered from 0 on."""
        put_v2_head(
            self._target(),
            0,
            0,
            self.size_bytes - LEADER_EPOCH_AT,
            0,
            self.record_count - 1,
            self.base_timestamp,
            self.max_timestamp,
            self.record_count,
        )
        put_uint32(self._target(), CRC_AT, crc32c_of(self._target(), ATTRIBUTES_AT, self.size_bytes))
        return memoryview(self.out)[: self.size_bytes]

    def body(self) -> memoryview:
        """The bytes of the records alone."""
        return memoryview(self.out)[V2_HEADER_SIZE : self.size_bytes]

    def append(self, rows: RecordRows, row: int, limit_bytes: int) -> bool:
        """Add a row's record, unless the batch has any and would have more than `limit_bytes` with it."""
        timestamp = rows.timestamps[row]
        if self.record_count == 0:
            self.base_timestamp = self.max_timestamp = timestamp
        delta = timestamp - self.base_timestamp
        body_size = _body_size(rows, row, delta, self.record_count)
        size_bytes = self.size_bytes + varint_size(body_size) + body_size
        if size_bytes > limit_bytes and self.record_count > 0:
            return False
        if size_bytes > MAX_BATCH_BYTES:
            raise ValueError(f"a record of {body_size} bytes")
        if size_bytes > len(self.out):
            self._grow(size_bytes)
        out = self._target()
        at = put_varint(out, self.size_bytes, body_size)
        out[at] = 0
        at = put_varint(out, at + 1, delta)
        at = put_varint(out, at, self.record_count)
        at = _put_string(out, at, rows.keys, row, rows.keys.size_at(row, len(rows.keys.data)))
        at = _put_string(out, at, rows.values, row, rows.values.size_at(row, len(rows.values.data)))
        at = _put_headers(out, at, rows, row)
        self.size_bytes = at
        self.record_count += 1
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        return True

    def _target(self) -> memoryview:
        return cython.address(self.out[0]) if cython.compiled else self.out

    def _grow(self, least_bytes: int) -> None:
        larger = bytearray(max(2 * len(self.out), least_bytes))
        larger[: self.size_bytes] = self.out[: self.size_bytes]
        self.out = memoryview(larger)


class TopicBatches:
    """The batches of one topic's partitions that are growing, in `growing` (None where there are no records).

    A row without a partition goes where Kafka's producers put its key; without a key, to `keyless_partition` for as
    long as a batch lasts, then to the next.
    """

    def __init__(self, partition_count: int, keyless_partition: int, limit_bytes: int) -> None:
        self.partition_count = partition_count
        self.keyless_partition = keyless_partition % partition_count
        self.limit_bytes = limit_bytes
        self.growing: list[GrowingBatch | None] = [None] * partition_count
        self.full_partition = -1

    def fill(self, rows: RecordRows, row: int) -> int:
        """Take rows from `row` on; the first one not taken, as the batch of `full_partition` has no room for it.

        To go on, take that batch away. Raises ValueError for a partition that there is not, and what is no column.
        """
        while row < rows.count:
            partition = rows.partitions[row]
            key_size = -1
            if partition < 0:
                key_size = rows.keys.size_at(row, len(rows.keys.data))
                partition = self.keyless_partition if key_size < 0 else self._partition_of(rows.keys, row)
            elif partition >= self.partition_count:
                raise ValueError(f"partition {partition} of {self.partition_count}")
            batch = self.growing[partition]
            if batch is None:
                batch = self.growing[partition] = GrowingBatch(LEAST_CAPACITY)
            if not batch.append(rows, row, self.limit_bytes):
                self.full_partition = partition
                if rows.partitions[row] < 0 and key_size < 0:
                    self.keyless_partition = (partition + 1) % self.partition_count
                return row
            row += 1
        return row

    def take(self, partition: int) -> GrowingBatch | None:
        """The batch of a partition, which begins with none then."""
        batch = self.growing[partition]
        self.growing[partition] = None
        return batch

    def _partition_of(self, keys: BytesRows, row: int) -> int:
        hashed = murmur2(keys.data[keys.ends[row] : keys.ends[row + 1]])
        return (hashed & POSITIVE) % self.partition_count


def _body_size(rows: RecordRows, row: int, timestamp_delta: int, offset_delta: int) -> int:
    """Bytes of a record behind its own size. Raises ValueError for a header without a key."""
    count = rows.header_size(row)
    size = 1 + varint_size(timestamp_delta) + varint_size(offset_delta) + varint_size(count)
    size += _string_size(rows.keys.size_at(row, len(rows.keys.data)))
    size += _string_size(rows.values.size_at(row, len(rows.values.data)))
    index = rows.header_lists.ends[row] if count > 0 else 0
    while count > 0:
        key_size = rows.header_keys.size_at(index, len(rows.header_keys.data))
        if key_size < 0:
            raise ValueError(f"row {row} has a header without a key")
        size += _string_size(key_size)
        size += _string_size(rows.header_values.size_at(index, len(rows.header_values.data)))
        index += 1
        count -= 1
    return size


def _string_size(size: int) -> int:
    return 1 if size < 0 else varint_size(size) + size


def _put_string(out: memoryview, position: int, strings: BytesRows, row: int, size: int) -> int:
    """Write a byte string of a known size with its size before it; the position after it."""
    position = put_varint(out, position, size)
    if size <= 0:
        return position
    if cython.compiled:
        copy_bytes(out, position, cython.address(strings.data[0]), strings.ends[row], size)
    else:
        copy_bytes(out, position, strings.data, strings.ends[row], size)
    return position + size


def _put_headers(out: memoryview, position: int, rows: RecordRows, row: int) -> int:
    count = rows.header_size(row)
    position = put_varint(out, position, count)
    index = rows.header_lists.ends[row] if count > 0 else 0
    while count > 0:
        keys = rows.header_keys
        position = _put_string(out, position, keys, index, keys.size_at(index, len(keys.data)))
        values = rows.header_values
        position = _put_string(out, position, values, index, values.size_at(index, len(values.data)))
        index += 1
        count -= 1
    return position
