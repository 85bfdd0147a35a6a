"""Record format v1 (KIP-31 and KIP-32, Kafka 0.10): messages with a timestamp, relative offsets inside wrappers.

    at 0   int64  offset
    8      int32  size of what follows
    12     uint32 CRC-32 from 16 on
    16     int8   magic (1)
    17     int8   attributes: bits 0-2 codec (gzip, snappy or lz4), 3 timestamp type (1: LogAppendTime)
    18     int64  timestamp, milliseconds (-1: none)
    26     int32  key length (-1: null), key
    then   int32  value length (-1: null), value

A compressed message set is one message (the wrapper) whose value is the compressed set. The wrapper's offset is that
of its last inner message; inner offsets count from the first one (0, 1, 2, with gaps after compaction), so an offset
is wrapper offset - last inner offset + inner offset. The wrapper's timestamp is the largest inside; if its type is
LogAppendTime it is that of every inner message.
Source of the rules: Kafka `LegacyRecord` and `AbstractLegacyRecordBatch`.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from .compression import Codec, compress
from .record import NO_TIMESTAMP, Buffer, Record, TimestampType
from .v0 import LOG_OVERHEAD, UINT32, append_field, message_crc

MAGIC = 1

HEADER = Struct(">qiIBBqi")
"""offset, size, CRC, magic, attributes, timestamp, key length."""
HEADER_SIZE = HEADER.size

OFFSET_AT = 0
SIZE_AT = 8
CRC_AT = 12
MAGIC_AT = 16
ATTRIBUTES_AT = 17
TIMESTAMP_AT = 18
KEY_LENGTH_AT = 26

CODEC_MASK = 0x07
LOG_APPEND_TIME_FLAG = 0x08

MIN_MESSAGE_SIZE = 22
"""The least value of the size field (Kafka `LegacyRecord.RECORD_OVERHEAD_V1`)."""


def build_message(
    offset: int, timestamp: int, key: Buffer | None, value: Buffer | None, *, attributes: int = 0
) -> bytes:
    """Build one message with its offset and size fields."""
    message = bytearray(KEY_LENGTH_AT)
    append_field(message, key)
    append_field(message, value)
    HEADER.pack_into(
        message,
        0,
        offset,
        len(message) - LOG_OVERHEAD,
        0,
        MAGIC,
        attributes,
        timestamp,
        -1 if key is None else len(key),
    )
    UINT32.pack_into(message, CRC_AT, message_crc(message, 0, len(message)))
    return bytes(message)


def build_message_set(
    records: Sequence[Record],
    *,
    codec: Codec = Codec.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
) -> bytes:
    """Build the messages of `records` as in a log; with a codec, all in one wrapper with relative offsets.

    With LogAppendTime all records should have that time. This format has no headers, so they are dropped.
    """
    flags = LOG_APPEND_TIME_FLAG if timestamp_type is TimestampType.LOG_APPEND_TIME else 0
    first_offset = records[0].offset if records and codec is not Codec.NONE else 0
    messages = b"".join(
        build_message(record.offset - first_offset, record.timestamp, record.key, record.value, attributes=flags)
        for record in records
    )
    if codec is Codec.NONE or not records:
        return messages
    return build_message(
        records[-1].offset,
        max((record.timestamp for record in records), default=NO_TIMESTAMP),
        None,
        compress(codec, messages, magic=MAGIC),
        attributes=int(codec) | flags,
    )
