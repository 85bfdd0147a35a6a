"""Record format v2 (KIP-98, since Kafka 0.11): one header, then records of variable-length integers.

Batch:                              Record (every length and delta is a zig-zag varint):

    at 0   int64  base offset           varint   length of what follows
    8      int32  length from 12 on     int8     attributes (unused)
    12     int32  leader epoch          varlong  timestamp - base timestamp
    16     int8   magic (2)             varint   offset - base offset
    17     uint32 CRC-32C from 21 on    varint   key length (-1: null), key
    21     int16  attributes            varint   value length (-1: null), value
    23     int32  last offset delta     varint   number of headers, each:
    27     int64  base timestamp            varint  key length, key (UTF-8)
    35     int64  max timestamp             varint  value length (-1: null), value
    43     int64  producer id
    51     int16  producer epoch
    53     int32  base sequence
    57     int32  number of records
    61     records, all together compressed by the codec of the attributes

Attributes: bits 0-2 codec, 3 timestamp type (1: LogAppendTime), 4 transactional, 5 control, 6 delete horizon
(the base timestamp is the horizon), the rest unused. Fields before the CRC can be patched without a new CRC.
Source of the rules: Kafka `DefaultRecordBatch` and `DefaultRecord`.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from . import crc_cy
from .compression import Codec, compress
from .record import NO_TIMESTAMP, Buffer, Record, TimestampType
from .varint import encode_varint

MAGIC = 2

HEADER = Struct(">qiiBIhiqqqhii")
"""All header fields, in the order of the table above."""

BASE_OFFSET_AT = 0
LENGTH_AT = 8
LEADER_EPOCH_AT = 12
MAGIC_AT = 16
CRC_AT = 17
ATTRIBUTES_AT = 21
LAST_OFFSET_DELTA_AT = 23
BASE_TIMESTAMP_AT = 27
MAX_TIMESTAMP_AT = 35
PRODUCER_ID_AT = 43
PRODUCER_EPOCH_AT = 51
BASE_SEQUENCE_AT = 53
RECORD_COUNT_AT = 57
RECORDS_AT = 61
HEADER_SIZE = RECORDS_AT

CODEC_MASK = 0x07
LOG_APPEND_TIME_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1

INT32 = Struct(">i")
UINT32 = Struct(">I")


def batch_crc(buffer: Buffer, position: int, size_bytes: int) -> int:
    """Compute the CRC-32C of the batch at `position`, from the attributes to the end, for the batch's CRC field."""
    return crc_cy.crc32c(memoryview(buffer)[position + ATTRIBUTES_AT : position + size_bytes])


def append_record(out: bytearray, record: Record, *, base_offset: int, base_timestamp: int) -> None:
    """Append one record in this format, its offset and timestamp relative to the batch's."""
    key, value, headers = record.key, record.value, record.headers
    pieces = [
        b"\0",
        encode_varint(record.timestamp - base_timestamp),
        encode_varint(record.offset - base_offset),
        encode_varint(-1 if key is None else len(key)),
        key or b"",
        encode_varint(-1 if value is None else len(value)),
        value or b"",
        encode_varint(len(headers)),
    ]
    for name, content in headers:
        pieces += (encode_varint(len(name)), name, encode_varint(-1 if content is None else len(content)))
        pieces.append(content or b"")
    body = b"".join(pieces)
    out += encode_varint(len(body))
    out += body


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    last_offset: int | None = None,
    codec: Codec = Codec.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    base_timestamp: int | None = None,
    max_timestamp: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """Build one batch of `records`, whose offsets are absolute (`base_offset` and up) and may have gaps.

    `base_timestamp` defaults to the first record's, `max_timestamp` to the largest, `last_offset` to the last
    record's. Without records the batch is only a header, as compaction keeps it for a producer's state.
    """
    if base_timestamp is None:
        base_timestamp = records[0].timestamp if records else NO_TIMESTAMP
    if max_timestamp is None:
        max_timestamp = max((record.timestamp for record in records), default=NO_TIMESTAMP)
    if last_offset is None:
        last_offset = records[-1].offset if records else base_offset
    body = bytearray()
    for record in records:
        append_record(body, record, base_offset=base_offset, base_timestamp=base_timestamp)
    return assemble_batch(
        compress(codec, body, magic=MAGIC) if codec and records else body,
        record_count=len(records),
        base_offset=base_offset,
        last_offset=last_offset,
        attributes=attributes_of(codec, timestamp_type, is_transactional=is_transactional, is_control=is_control),
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        leader_epoch=leader_epoch,
    )


def with_body(batch: memoryview, body: Buffer, codec: Codec) -> bytes:
    """Return a copy of a batch with other bytes of its records, compressed by `codec`, and a new length and CRC."""
    changed = bytearray(HEADER_SIZE + len(body))
    changed[:HEADER_SIZE] = batch[:HEADER_SIZE]
    changed[HEADER_SIZE:] = body
    INT32.pack_into(changed, LENGTH_AT, len(changed) - LEADER_EPOCH_AT)
    # The codec's bits are in the second byte of the attributes.
    changed[ATTRIBUTES_AT + 1] = changed[ATTRIBUTES_AT + 1] & ~CODEC_MASK | codec
    UINT32.pack_into(changed, CRC_AT, batch_crc(changed, 0, len(changed)))
    return bytes(changed)


def next_sequence(base_sequence: int, record_count: int) -> int:
    """Return the sequence number after `record_count` records; it wraps at 2**31 (Kafka `DefaultRecordBatch`)."""
    return (base_sequence + record_count) & 0x7FFFFFFF


def attributes_of(
    codec: Codec, timestamp_type: TimestampType, *, is_transactional: bool = False, is_control: bool = False
) -> int:
    """Return the attributes field for these facts."""
    attributes = int(codec)
    if timestamp_type is TimestampType.LOG_APPEND_TIME:
        attributes |= LOG_APPEND_TIME_FLAG
    if is_transactional:
        attributes |= TRANSACTIONAL_FLAG
    if is_control:
        attributes |= CONTROL_FLAG
    return attributes


def assemble_batch(
    body: Buffer,
    *,
    record_count: int,
    base_offset: int,
    last_offset: int,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """Build a batch of a header with length and CRC, and `body`, the records compressed as in `attributes`."""
    batch = assemble_without_crc(
        body,
        record_count=record_count,
        base_offset=base_offset,
        last_offset=last_offset,
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        leader_epoch=leader_epoch,
    )
    write_crc(batch)
    return bytes(batch)


def write_crc(batch: bytearray | memoryview) -> None:
    """Compute the CRC of the one batch in `batch` and write it into the header."""
    UINT32.pack_into(batch, CRC_AT, batch_crc(batch, 0, len(batch)))


def assemble_without_crc(
    body: Buffer,
    *,
    record_count: int,
    base_offset: int,
    last_offset: int,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """Build a batch as `assemble_batch` does, with a CRC of 0: for callers that still change the header."""
    header = HEADER.pack(
        base_offset,
        HEADER_SIZE + len(body) - LEADER_EPOCH_AT,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        last_offset - base_offset,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    return bytearray().join((header, body))
