"""Building batches of format v2 from columns, without an object per record: the inverse of ``columns_cy``.

Columns have Arrow's layout. This is ordinary Python that is also compiled, like ``kernel_cy``: ``batching_cy.pxd`` has
the C types. The ends of byte strings are input and are checked explicitly before any read.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from . import cython_stand_in as cython

if not cython.compiled:
    from .checksum_libraries import crc32c_of
    from .message_bytes import copy_bytes, put_uint32, put_v2_head
    from .murmur2_cy import murmur2
    from .varint import put_varint, varint_size

COMPILED: bool = cython.compiled
"""Whether this module is compiled."""

V2_HEADER_SIZE = 61
LEADER_EPOCH_AT = 12
CRC_AT = 17
ATTRIBUTES_AT = 21
LEAST_CAPACITY = 4096
MAX_BATCH_BYTES = 0x7FFFFFFF
POSITIVE = 0x7FFFFFFF


class BytesRows:
    """Nullable byte strings, or lists, in Arrow's layout.

    String n is `data` from `ends[n]` to `ends[n + 1]` (int32); list n has these elements. Entry n is null if bit
    `first_bit` + n of `valid` is 0; with an empty `valid` no entry is null.
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
        """Return the size of string `row`, or of a list; -1 for a null. Raises ValueError if it ends beyond `limit`."""
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
    """Columns of records for one topic.

    `timestamps` (int64, milliseconds) and `partitions` (int32, negative: by the key) have an entry for each row.
    `header_lists` has the range of a row's elements in `header_keys` and `header_values`.
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
        """Return the number of headers of a row."""
        return max(self.header_lists.size_at(row, self.header_count), 0)


class GrowingBatch:
    """A batch under construction; `out` has room for a header and then the records, `size_bytes` in total."""

    def __init__(self, capacity: int) -> None:
        self.out = memoryview(bytearray(max(capacity, LEAST_CAPACITY)))
        self.size_bytes = V2_HEADER_SIZE
        self.record_count = 0
        self.base_timestamp = 0
        self.max_timestamp = 0

    def uncompressed(self) -> memoryview:
        """Return the batch's bytes, uncompressed, without a producer, with offsets from 0 on."""
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
        """Return the bytes of the records without the header."""
        return memoryview(self.out)[V2_HEADER_SIZE : self.size_bytes]

    def append(self, rows: RecordRows, row: int, limit_bytes: int) -> bool:
        """Add a row's record, unless the batch is not empty and would exceed `limit_bytes`."""
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
    """The batches under construction of one topic's partitions, in `growing` (None for a partition without records).

    A row without a partition gets the partition that Kafka's producers choose for its key; without a key, it goes to
    `keyless_partition`, which changes with each batch.
    """

    def __init__(self, partition_count: int, keyless_partition: int, limit_bytes: int) -> None:
        self.partition_count = partition_count
        self.keyless_partition = keyless_partition % partition_count
        self.limit_bytes = limit_bytes
        self.growing: list[GrowingBatch | None] = [None] * partition_count
        self.full_partition = -1

    def fill(self, rows: RecordRows, row: int) -> int:
        """Add rows from `row` on; return the first row not added because the batch of `full_partition` is full.

        To continue, `take` that batch. Raises ValueError for a partition that does not exist and for malformed columns.
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
        """Return and remove the batch of a partition."""
        batch = self.growing[partition]
        self.growing[partition] = None
        return batch

    def _partition_of(self, keys: BytesRows, row: int) -> int:
        hashed = murmur2(keys.data[keys.ends[row] : keys.ends[row + 1]])
        return (hashed & POSITIVE) % self.partition_count


def _body_size(rows: RecordRows, row: int, timestamp_delta: int, offset_delta: int) -> int:
    """Return the size of a record without its length field. Raises ValueError for a header without a key."""
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
    """Write a byte string of a known size after its size; return the position after it."""
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
