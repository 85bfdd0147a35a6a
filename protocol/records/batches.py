"""Batches of any format through one view of their header, and the records inside.

Fields and records are decoded on request only. In formats v0 and v1, Kafka's batch is one message: a single record, or
a wrapper around a compressed message set.

**Inner offsets.** A log stores wrappers as they were produced, with any inner offsets. If the inner offsets are not
those that the format defines (v0: absolute; v1: 0, 1, 2 ... from the wrapper's first), the append sets
`v0.NUMBERED_BY_INDEX_FLAG` in the wrapper: its n records have the offsets from wrapper offset - (n - 1) to the
wrapper's offset. Without this flag the inner offsets are valid, as in every log that Kafka wrote.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import BrokerError, ErrorCode
from . import v0, v1, v2
from .compression import DEFAULT_LIMIT_BYTES, Codec, codec_of, decompress
from .record import NO_TIMESTAMP, Buffer, Header, Record, TimestampType
from .varint import INT64_LAST_SHIFT, read_varint

__all__ = [
    "BatchView",
    "Buffer",
    "Header",
    "Record",
    "TimestampType",
    "complete_batch_at",
    "iter_batches",
    "iter_records",
    "read_batch",
]

LOG_OVERHEAD = v0.LOG_OVERHEAD
"""The size of the offset and size fields at the start of a batch of any format."""

MAGIC_AT = 16
"""The position of the magic byte in every format."""

MIN_BATCH_SIZE = (v0.MIN_MESSAGE_SIZE, v1.MIN_MESSAGE_SIZE, v2.HEADER_SIZE - LOG_OVERHEAD)
"""The least value of the size field, by magic."""
MAX_BATCH_SIZE = 2**31 - 1
"""The largest size of a batch: Kafka stores the size in an int32."""


class BatchView:
    """A view of the header of one batch at `position` of `buffer`; `size_bytes` includes the offset and size fields.

    `last_offset` is the stored offset for v0 and v1, base offset + delta for v2. `record_count` is None for a
    compressed v0 or v1 set, which has no count. Producer fields and `leader_epoch` are -1 before v2, `max_timestamp` is
    -1 for v0. Only sizes are checked when a view is made: see `crc_is_valid`.
    """

    __slots__ = (
        "attributes",
        "base_sequence",
        "base_timestamp",
        "buffer",
        "crc",
        "last_offset",
        "leader_epoch",
        "magic",
        "max_timestamp",
        "position",
        "producer_epoch",
        "producer_id",
        "record_count",
        "size_bytes",
        "stored_offset",
    )

    buffer: Buffer
    position: int
    size_bytes: int
    stored_offset: int
    """The first eight bytes: base offset (v2) or last offset (v0, v1)."""
    last_offset: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int | None

    def __init__(self, buffer: Buffer, position: int, size_bytes: int, magic: int) -> None:
        self.buffer = buffer
        self.position = position
        self.size_bytes = size_bytes
        self.magic = magic
        if magic == v2.MAGIC:
            self._read_v2_header()
        else:
            self._read_message_header()

    def _read_v2_header(self) -> None:
        (
            self.stored_offset,
            _,
            self.leader_epoch,
            _,
            self.crc,
            self.attributes,
            last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        ) = v2.HEADER.unpack_from(self.buffer, self.position)
        self.last_offset = self.stored_offset + last_offset_delta

    def _read_message_header(self) -> None:
        if self.magic == v0.MAGIC:
            self.stored_offset, _, self.crc, _, self.attributes, _ = v0.HEADER.unpack_from(self.buffer, self.position)
            self.max_timestamp = NO_TIMESTAMP
        else:
            (self.stored_offset, _, self.crc, _, self.attributes, self.max_timestamp, _) = v1.HEADER.unpack_from(
                self.buffer, self.position
            )
        self.base_timestamp = self.max_timestamp
        self.last_offset = self.stored_offset
        self.leader_epoch = v2.NO_LEADER_EPOCH
        self.producer_id = v2.NO_PRODUCER_ID
        self.producer_epoch = v2.NO_PRODUCER_EPOCH
        self.base_sequence = v2.NO_SEQUENCE
        self.record_count = None if self.attributes & v0.CODEC_MASK else 1

    @property
    def base_offset(self) -> int:
        """Return the first record's offset; decompresses a v0 or v1 set, which stores only the last offset."""
        if self.magic == v2.MAGIC:
            return self.stored_offset
        if self.record_count is not None:
            return self.last_offset
        return next(iter_records(self)).offset

    @property
    def end(self) -> int:
        """Return the position after this batch."""
        return self.position + self.size_bytes

    @property
    def view(self) -> memoryview:
        """Return a view of the batch's bytes."""
        return memoryview(self.buffer)[self.position : self.end]

    @property
    def codec(self) -> Codec:
        """Return the compression codec. Raises BrokerError CORRUPT_MESSAGE for an unknown codec."""
        return codec_of(self.attributes)

    @property
    def is_compressed(self) -> bool:
        """Return whether the attributes name a codec, known or not."""
        return self.attributes & v0.CODEC_MASK != 0

    @property
    def timestamp_type(self) -> TimestampType:
        """Return the timestamp type: CreateTime or LogAppendTime."""
        if self.magic == v0.MAGIC:
            return TimestampType.NO_TIMESTAMP_TYPE
        return TimestampType.LOG_APPEND_TIME if self.attributes & v1.LOG_APPEND_TIME_FLAG else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """Return whether the batch belongs to a transaction (v2 only)."""
        return self.magic == v2.MAGIC and self.attributes & v2.TRANSACTIONAL_FLAG != 0

    @property
    def is_control(self) -> bool:
        """Return whether the batch is a control batch, which no consumer's application receives (v2 only)."""
        return self.magic == v2.MAGIC and self.attributes & v2.CONTROL_FLAG != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """Return the batch's delete horizon (KIP-534) for tombstones and markers, None if the cleaner has set none."""
        has_horizon = self.magic == v2.MAGIC and self.attributes & v2.DELETE_HORIZON_FLAG != 0
        return self.base_timestamp if has_horizon else None

    @property
    def has_producer_id(self) -> bool:
        """Return whether an idempotent producer wrote the batch."""
        return self.producer_id > v2.NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """Return the sequence of the last record, -1 without records; sequences wrap at 2**31 - 1 to 0."""
        if self.base_sequence == v2.NO_SEQUENCE:
            return v2.NO_SEQUENCE
        return v2.next_sequence(self.base_sequence, self.last_offset - self.stored_offset)

    @property
    def is_numbered_by_index(self) -> bool:
        """Return whether a wrapper's inner offsets are invalid and replaced by indexes; see the module's docstring."""
        return self.magic < v2.MAGIC and self.attributes & v0.NUMBERED_BY_INDEX_FLAG != 0

    @property
    def crc_is_valid(self) -> bool:
        """Return whether the bytes match the stored CRC."""
        if self.magic == v2.MAGIC:
            return v2.batch_crc(self.buffer, self.position, self.size_bytes) == self.crc
        return v0.message_crc(self.buffer, self.position, self.size_bytes) == self.crc

    def __repr__(self) -> str:
        return (
            f"<v{self.magic} batch to offset {self.last_offset}, {self.size_bytes} bytes at {self.position}, "
            f"attributes {self.attributes:#x}>"
        )


def read_batch(buffer: Buffer, position: int = 0) -> BatchView | None:
    """Return the batch at `position`, None if the buffer ends inside the batch (Kafka's readers ignore such a tail).

    Raises BrokerError CORRUPT_MESSAGE for a magic beyond 2 or a size below the format's least.
    Source: Kafka `ByteBufferLogInputStream`.
    """
    available = len(buffer) - position
    if available < LOG_OVERHEAD:
        return None
    _, size = v0.OFFSET_AND_SIZE.unpack_from(buffer, position)
    if size < v0.MIN_MESSAGE_SIZE:
        raise BrokerError(
            ErrorCode.CORRUPT_MESSAGE,
            f"Record size {size} is less than the minimum record overhead ({v0.MIN_MESSAGE_SIZE})",
        )
    if available <= MAGIC_AT:
        return None
    magic = buffer[position + MAGIC_AT]
    if magic > v2.MAGIC:
        raise BrokerError(ErrorCode.CORRUPT_MESSAGE, f"Invalid magic found in record: {magic}")
    if available < LOG_OVERHEAD + size:
        if LOG_OVERHEAD + size > MAX_BATCH_SIZE:
            raise BrokerError(ErrorCode.CORRUPT_MESSAGE, f"Record size {size} is more than a batch can have")
        return None
    if size < MIN_BATCH_SIZE[magic]:
        raise BrokerError(
            ErrorCode.CORRUPT_MESSAGE,
            f"Record size {size} is less than format v{magic} needs ({MIN_BATCH_SIZE[magic]})",
        )
    return BatchView(buffer, position, LOG_OVERHEAD + size, magic)


def complete_batch_at(buffer: Buffer, position: int) -> BatchView:
    """Return the batch at `position`. Raises BrokerError CORRUPT_MESSAGE if the batch is incomplete."""
    batch = read_batch(buffer, position)
    if batch is None:
        raise BrokerError(ErrorCode.CORRUPT_MESSAGE, f"Found no complete batch at byte {position}")
    return batch


def iter_batches(buffer: Buffer, position: int = 0) -> Iterator[BatchView]:
    """Iterate over the complete batches from `position` on; a partial tail is ignored. Raises as `read_batch`."""
    while (batch := read_batch(buffer, position)) is not None:
        yield batch
        position = batch.end


def iter_records(batch: BatchView, *, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> Iterator[Record]:
    """Iterate over the records of one batch with their absolute offsets.

    Raises BrokerError: INVALID_RECORD for contents that break the format, CORRUPT_MESSAGE for broken compressed data,
    MESSAGE_TOO_LARGE for a batch that inflates beyond `limit_bytes`. Checks no CRC.
    """
    if batch.magic == v2.MAGIC:
        return _iter_v2_records(batch, limit_bytes)
    if batch.is_compressed:
        return _iter_inner_messages(batch, limit_bytes)
    return iter((read_message(batch),))


# --- format v2 ---


def _iter_v2_records(batch: BatchView, limit_bytes: int) -> Iterator[Record]:
    count = batch.record_count or 0
    if count == 0:
        return
    if count < 0:
        raise invalid_record(f"Found invalid record count {count} in magic v2 batch")
    body: Buffer = batch.view[v2.RECORDS_AT :]
    if batch.is_compressed:
        body = decompress(batch.codec, body, magic=v2.MAGIC, limit_bytes=limit_bytes)
    log_append_time = batch.max_timestamp if batch.timestamp_type is TimestampType.LOG_APPEND_TIME else None
    position = 0
    for _ in range(count):
        record, position = read_v2_record(
            body,
            position,
            base_offset=batch.stored_offset,
            base_timestamp=batch.base_timestamp,
            log_append_time=log_append_time,
        )
        yield record
    if position != len(body):
        raise invalid_record("Incorrect declared batch size, records still remaining in file")


def read_v2_record(
    body: Buffer, position: int, *, base_offset: int, base_timestamp: int, log_append_time: int | None = None
) -> tuple[Record, int]:
    """Decode the record at `position`; returns it and the position after it. Raises BrokerError INVALID_RECORD."""
    try:
        size, position = read_varint(body, position)
        end = position + size
        if size < 0 or end > len(body):
            raise invalid_record(f"Invalid record size: {size} bytes, but {len(body) - position} remain")
        timestamp_delta, position = read_varint(body, position + 1, last_shift=INT64_LAST_SHIFT)
        offset_delta, position = read_varint(body, position)
        key, position = _read_nullable(body, position, end)
        value, position = _read_nullable(body, position, end)
        headers, position = _read_headers(body, position, end)
    except (IndexError, ValueError) as fault:
        raise invalid_record("Found invalid record structure") from fault
    if position != end:
        raise invalid_record(f"Invalid record size: {size} bytes declared, {size + position - end} used")
    timestamp = base_timestamp + timestamp_delta if log_append_time is None else log_append_time
    return Record(base_offset + offset_delta, timestamp, key, value, headers), end


def _read_nullable(body: Buffer, position: int, end: int) -> tuple[bytes | None, int]:
    size, position = read_varint(body, position)
    if size < 0:
        # Kafka reads any negative length as a null, not only -1.
        return None, position
    if size > end - position:
        raise invalid_record("Found invalid record structure")
    return bytes(body[position : position + size]), position + size


def _read_headers(body: Buffer, position: int, end: int) -> tuple[tuple[Header, ...], int]:
    count, position = read_varint(body, position)
    if count == 0:
        return (), position
    if not 0 <= count <= end - position:
        raise invalid_record(f"Found invalid number of record headers {count}")
    headers = []
    for _ in range(count):
        key, position = _read_nullable(body, position, end)
        if key is None:
            raise invalid_record("Invalid negative header key size")
        value, position = _read_nullable(body, position, end)
        headers.append(Header(key, value))
    return tuple(headers), position


# --- formats v0 and v1 ---


def read_message(batch: BatchView) -> Record:
    """Return the record of an uncompressed v0 or v1 message. Raises BrokerError INVALID_RECORD."""
    position = batch.position + (v0.KEY_LENGTH_AT if batch.magic == v0.MAGIC else v1.KEY_LENGTH_AT)
    key, position = _read_field(batch.buffer, position, batch.end)
    value, position = _read_field(batch.buffer, position, batch.end)
    return Record(batch.last_offset, batch.max_timestamp, key, value)


def _read_field(buffer: Buffer, position: int, end: int) -> tuple[bytes | None, int]:
    start = position + v0.INT32.size
    if start > end:
        raise invalid_record("Found invalid message structure: the size leaves no room for its fields")
    (size,) = v0.INT32.unpack_from(buffer, position)
    if size < 0:
        return None, start
    if size > end - start:
        raise invalid_record(f"Found invalid message structure: a field of {size} bytes in {end - start}")
    return bytes(buffer[start : start + size]), start + size


def wrapped_set(batch: BatchView) -> bytes:
    """Return the compressed message set of a v0 or v1 wrapper. Raises BrokerError INVALID_RECORD."""
    value = read_message(batch).value
    if value is None:
        raise invalid_record(f"Found invalid compressed record set with null value (magic = {batch.magic})")
    if batch.codec is Codec.ZSTD:
        raise invalid_record("Invalid wrapper compressionType found in legacy deep record iterator: zstd")
    return value


def inner_message_set(batch: BatchView, *, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> bytes:
    """Decompress the message set of a v0 or v1 wrapper. Raises BrokerError as `iter_records`."""
    return decompress(batch.codec, wrapped_set(batch), magic=batch.magic, limit_bytes=limit_bytes)


def _iter_inner_messages(batch: BatchView, limit_bytes: int) -> Iterator[Record]:
    inner_set = inner_message_set(batch, limit_bytes=limit_bytes)
    # Two passes, since a list of all messages would take ten times their memory.
    count, last_inner_offset = 0, -1
    for message in iter_batches(inner_set):
        count, last_inner_offset = count + 1, message.stored_offset
    if not count:
        raise invalid_record("Found invalid compressed record set with no inner records")
    first_offset = inner_base_offset(batch, last_inner_offset=last_inner_offset)
    is_log_append_time = batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    for index, message in enumerate(iter_batches(inner_set)):
        if message.magic == v2.MAGIC or message.is_compressed:
            raise invalid_record("Inner messages must not be compressed")
        record = read_message(message)
        if batch.is_numbered_by_index:
            record = record._replace(offset=batch.last_offset - (count - 1) + index)
        elif first_offset:
            record = record._replace(offset=first_offset + record.offset)
        if is_log_append_time:
            record = record._replace(timestamp=batch.max_timestamp)
        yield record


def inner_base_offset(batch: BatchView, *, last_inner_offset: int) -> int:
    """Return the difference between a wrapper's inner offsets (where they are valid) and the log's offsets.

    The difference is 0 for v0. A v1 wrapper at offset 0 holds absolute offsets (as some librdkafka versions produced),
    other v1 wrappers hold relative offsets. Raises BrokerError INVALID_RECORD for impossible inner offsets.
    """
    if batch.magic == v0.MAGIC or batch.last_offset == 0:
        return 0
    if batch.last_offset < last_inner_offset and not batch.is_numbered_by_index:
        raise invalid_record(
            f"Found invalid wrapper offset in compressed v1 message set, wrapper offset '{batch.last_offset}' is less "
            f"than the last inner message offset '{last_inner_offset}' and it is not zero."
        )
    return batch.last_offset - last_inner_offset


def invalid_record(message: str) -> BrokerError:
    """Build the error for contents that break their format."""
    return BrokerError(ErrorCode.INVALID_RECORD, message)
