"""Record format v0 (Kafka 0.8 and 0.9): messages without timestamps.

    at 0   int64  offset
    8      int32  size of what follows
    12     uint32 CRC-32 from 16 on
    16     int8   magic (0)
    17     int8   attributes: bits 0-2 codec (gzip, snappy or lz4), the rest unused
    18     int32  key length (-1: null), key
    then   int32  value length (-1: null), value

A compressed message set is one message (the wrapper) whose value is the compressed set. In a log the wrapper's
offset is that of its last inner message and the inner offsets are absolute; producers may send any offsets.
Source of the rules: Kafka `LegacyRecord` and `AbstractLegacyRecordBatch`.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from isal import isal_zlib

from .compression import Codec, compress
from .record import Buffer, Record

MAGIC = 0

HEADER = Struct(">qiIBBi")
"""offset, size, CRC, magic, attributes, key length."""
HEADER_SIZE = HEADER.size

OFFSET_AT = 0
SIZE_AT = 8
OFFSET_AND_SIZE = Struct(">qi")
LOG_OVERHEAD = OFFSET_AND_SIZE.size
CRC_AT = 12
MAGIC_AT = 16
ATTRIBUTES_AT = 17
KEY_LENGTH_AT = 18

CODEC_MASK = 0x07

NUMBERED_BY_INDEX_FLAG = 0x10
"""Gregor's own attribute bit in a wrapper (unused and ignored by Kafka): the inner offsets are not valid in the log, so
records are numbered by their index in the set."""

MIN_MESSAGE_SIZE = 14
"""The least value of the size field (Kafka `LegacyRecord.RECORD_OVERHEAD_V0`)."""

INT32 = Struct(">i")
UINT32 = Struct(">I")


def message_crc(buffer: Buffer, position: int, size_bytes: int) -> int:
    """Compute the CRC-32 of the message at `position`, magic to end; `size_bytes` includes offset and size fields."""
    return int(isal_zlib.crc32(memoryview(buffer)[position + MAGIC_AT : position + size_bytes]))


def build_message(offset: int, key: Buffer | None, value: Buffer | None, *, attributes: int = 0) -> bytes:
    """Build one message with its offset and size fields."""
    message = bytearray(KEY_LENGTH_AT)
    append_field(message, key)
    append_field(message, value)
    HEADER.pack_into(
        message, 0, offset, len(message) - LOG_OVERHEAD, 0, MAGIC, attributes, -1 if key is None else len(key)
    )
    UINT32.pack_into(message, CRC_AT, message_crc(message, 0, len(message)))
    return bytes(message)


def append_field(out: bytearray, data: Buffer | None) -> None:
    """Append a key or a value with its length."""
    out += INT32.pack(-1 if data is None else len(data))
    if data is not None:
        out += data


def build_message_set(records: Sequence[Record], *, codec: Codec = Codec.NONE) -> bytes:
    """Build the messages of `records` as in a log; with a codec, all in one wrapper.

    This format has no timestamps and headers, so they are dropped.
    """
    messages = b"".join(build_message(record.offset, record.key, record.value) for record in records)
    if codec is Codec.NONE or not records:
        return messages
    return build_message(records[-1].offset, None, compress(codec, messages, magic=MAGIC), attributes=int(codec))
