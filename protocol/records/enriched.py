"""The message layout of the proposal "Enriched Message Metadata" (Kafka wiki, 2014), in which metadata is tagged.

    int32  size of the fields after the size
    int64  offset; for a compressed message the offset of its *first* inner message
    uint32 CRC-32 of the fields after it
    int8   magic (1; Kafka later gave that number to another layout, which is never in one stream with this one)
    int8   attributes: bits 0-3 the type: 0 to 4 data, by codec; 8 to 11 control, see `ControlMessage`
    int32  timestamp in *seconds* since the epoch, -1 for none (int32 cannot hold milliseconds: tag 0 does)
    int32  length of the tags in bytes, -1 for none
           tags, each: int8 id, value
    int32  key length (-1: null), key
    int32  value length (-1: null), value

The proposal defines two tags, 0 as an int64 and 32 as an int32, and lets readers ignore unknown tags, but does not
define the sizes of those. Here the id determines the size, in ranges that agree with the two tags:

    0 .. 31      int64          0: receipt time in milliseconds
    32 .. 63     int32         32: number of inner messages
    64 .. 95     int16
    96 .. 127    int8          96: relative offsets are honoured, 97: some message has a key (1 or 0)
    -128 .. -1   int16 length (0 and up), bytes

A missing tag means: time unknown; one message if uncompressed, otherwise not counted; relative offsets *not* honoured
(inner messages are numbered by their index); keys possible. If a tag is repeated, the last one is valid.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from isal import isal_zlib

from ..errors import BrokerError, ErrorCode
from .batches import invalid_record
from .compression import DEFAULT_LIMIT_BYTES, Codec, compress, decompress
from .record import NO_TIMESTAMP, Buffer, Record
from .v0 import append_field

MAGIC = 1
TYPE_MASK = 0x0F

FRAME = Struct(">iq")
"""size, offset."""
HEAD = Struct(">IBBii")
"""CRC, magic, attributes, timestamp in seconds, length of the tags."""
CRC_SIZE = 4
MIN_SIZE = HEAD.size + 8
"""A message without tags, key and value: the head and two lengths of -1."""

NO_TAGS = -1
MS_PER_SECOND = 1000
INT32_MAX = 2**31 - 1

UINT32 = Struct(">I")
INT64 = Struct(">q")
INT32 = Struct(">i")
INT16 = Struct(">h")
INT8 = Struct(">b")

TIMESTAMP_TAG = 0
MESSAGE_COUNT_TAG = 32
RELATIVE_OFFSETS_HONOURED_TAG = 96
KEYED_TAG = 97


class ControlMessage(IntEnum):
    """The types of control messages; the proposal names the types without numbers."""

    LEADER_EPOCH = 8
    START_TRANSACTION = 9
    COMMIT_TRANSACTION = 10
    ABORT_TRANSACTION = 11


BAND_SIZE = 32
BANDS = (INT64, INT32, INT16, INT8)
"""The format of a tag's value by id // BAND_SIZE, for ids from 0 on."""

_CONTROL_TYPES = frozenset(ControlMessage)


class KafkaTags(NamedTuple):
    """The known tags of a message; None for a missing tag (see the module's docstring for its meaning)."""

    timestamp_ms: int | None = None
    message_count: int | None = None
    relative_offsets_honoured: bool | None = None
    keyed: bool | None = None


@dataclass(slots=True)
class EnrichedMessage:
    """A message of this layout; `timestamp_s` is in seconds, `tags` is None if their length is -1."""

    offset: int = 0
    attributes: int = 0
    timestamp_s: int = NO_TIMESTAMP
    tags: KafkaTags | None = None
    key: bytes | None = None
    value: bytes | None = None

    @property
    def control(self) -> ControlMessage | None:
        """Return the type of a control message; None for data and for undefined types."""
        message_type = self.attributes & TYPE_MASK
        return ControlMessage(message_type) if message_type in _CONTROL_TYPES else None

    @property
    def codec(self) -> Codec:
        """Return the codec of the value, a message set of this layout. Raises BrokerError INVALID_RECORD if no data."""
        message_type = self.attributes & TYPE_MASK
        if message_type > Codec.ZSTD:
            raise invalid_record(f"Message type {message_type} is not one of data")
        return Codec(message_type)

    @property
    def timestamp_ms(self) -> int:
        """Return the receipt time in milliseconds, from the tag or else from the header; -1 for none."""
        if self.tags is not None and self.tags.timestamp_ms is not None:
            return self.tags.timestamp_ms
        return NO_TIMESTAMP if self.timestamp_s < 0 else self.timestamp_s * MS_PER_SECOND


def encode_tags(tags: KafkaTags) -> bytes:
    """Encode the tag block, without its length."""
    out = bytearray()
    values = (
        (TIMESTAMP_TAG, tags.timestamp_ms),
        (MESSAGE_COUNT_TAG, tags.message_count),
        (RELATIVE_OFFSETS_HONOURED_TAG, tags.relative_offsets_honoured),
        (KEYED_TAG, tags.keyed),
    )
    for tag_id, value in values:
        if value is not None:
            out += INT8.pack(tag_id)
            out += BANDS[tag_id // BAND_SIZE].pack(value)
    return bytes(out)


def decode_tags(block: Buffer) -> KafkaTags:
    """Decode a tag block, ignoring tags of unknown ids. Raises BrokerError INVALID_RECORD for wrong lengths."""
    known: dict[int, int] = {}
    position = 0
    while position < len(block):
        (tag_id,) = INT8.unpack_from(block, position)
        position += INT8.size
        value_struct = BANDS[tag_id // BAND_SIZE] if tag_id >= 0 else INT16
        if position + value_struct.size > len(block):
            raise invalid_record(f"Tag {tag_id} does not fit into its block of {len(block)} bytes")
        (value,) = value_struct.unpack_from(block, position)
        position += value_struct.size
        if tag_id >= 0:
            known[tag_id] = value
        else:
            if not 0 <= value <= len(block) - position:
                raise invalid_record(f"Tag {tag_id} claims {value} bytes of {len(block) - position}")
            position += value
    honoured, keyed = known.get(RELATIVE_OFFSETS_HONOURED_TAG), known.get(KEYED_TAG)
    return KafkaTags(
        known.get(TIMESTAMP_TAG),
        known.get(MESSAGE_COUNT_TAG),
        None if honoured is None else honoured != 0,
        None if keyed is None else keyed != 0,
    )


def encode_message(message: EnrichedMessage) -> bytes:
    """Encode the message with its size and offset."""
    out = bytearray(FRAME.size + HEAD.size)
    tags = b"" if message.tags is None else encode_tags(message.tags)
    out += tags
    append_field(out, message.key)
    append_field(out, message.value)
    FRAME.pack_into(out, 0, len(out) - FRAME.size, message.offset)
    tags_length = NO_TAGS if message.tags is None else len(tags)
    HEAD.pack_into(out, FRAME.size, 0, MAGIC, message.attributes, message.timestamp_s, tags_length)
    crc = isal_zlib.crc32(memoryview(out)[FRAME.size + CRC_SIZE :])
    UINT32.pack_into(out, FRAME.size, crc)
    return bytes(out)


def iter_messages(buffer: Buffer, position: int = 0) -> Iterator[EnrichedMessage]:
    """Iterate over the complete messages from `position` on; an incomplete message at the end is ignored.

    Raises BrokerError: CORRUPT_MESSAGE for an impossible size, another magic or a wrong CRC, INVALID_RECORD for
    contents with wrong lengths.
    """
    view = memoryview(buffer)
    while len(view) - position >= FRAME.size:
        size, offset = FRAME.unpack_from(view, position)
        if size < MIN_SIZE:
            raise BrokerError(ErrorCode.CORRUPT_MESSAGE, f"Message size {size} is less than the minimum ({MIN_SIZE})")
        position += FRAME.size
        if size > len(view) - position:
            return
        yield _decode_message(offset, view[position : position + size])
        position += size


def _decode_message(offset: int, body: memoryview) -> EnrichedMessage:
    crc, magic, attributes, timestamp_s, tags_length = HEAD.unpack_from(body)
    if magic != MAGIC:
        raise BrokerError(ErrorCode.CORRUPT_MESSAGE, f"Invalid magic found in enriched message: {magic}")
    computed = isal_zlib.crc32(body[CRC_SIZE:])
    if computed != crc:
        raise BrokerError(
            ErrorCode.CORRUPT_MESSAGE, f"Record is corrupt (stored crc = {crc}, computed crc = {computed})"
        )
    position = HEAD.size
    tags = None
    if tags_length >= 0:
        if tags_length > len(body) - position:
            raise invalid_record(f"Tags of {tags_length} bytes in a message of {len(body)}")
        tags = decode_tags(body[position : position + tags_length])
        position += tags_length
    key, position = _read_field(body, position)
    value, position = _read_field(body, position)
    return EnrichedMessage(offset, attributes, timestamp_s, tags, key, value)


def _read_field(body: memoryview, position: int) -> tuple[bytes | None, int]:
    start = position + INT32.size
    if start > len(body):
        raise invalid_record("An enriched message ends before its fields")
    (size,) = INT32.unpack_from(body, position)
    if size < 0:
        return None, start
    if size > len(body) - start:
        raise invalid_record(f"A field of {size} bytes in an enriched message that has {len(body) - start} left")
    return bytes(body[start : start + size]), start + size


def build_compressed_message(
    records: Sequence[Record], codec: Codec, *, received_ms: int, relative_offsets_honoured: bool = True
) -> EnrichedMessage:
    """Build one compressed message of `records` (at least one, with increasing offsets), with all known tags."""
    first_offset = records[0].offset
    inner = b"".join(
        encode_message(
            EnrichedMessage(
                record.offset - first_offset,
                timestamp_s=seconds_of(record.timestamp),
                tags=None if record.timestamp == NO_TIMESTAMP else KafkaTags(timestamp_ms=record.timestamp),
                key=record.key,
                value=record.value,
            )
        )
        for record in records
    )
    tags = KafkaTags(
        timestamp_ms=received_ms,
        message_count=len(records),
        relative_offsets_honoured=relative_offsets_honoured,
        keyed=any(record.key is not None for record in records),
    )
    return EnrichedMessage(
        first_offset, int(codec), seconds_of(received_ms), tags, value=compress(codec, inner, magic=MAGIC)
    )


def iter_records(message: EnrichedMessage, *, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> Iterator[Record]:
    """Iterate over the records of `message`: itself, or inner messages at start offset + relative offset or + index.

    A control message has no records. Raises BrokerError as `iter_messages` and `compression.decompress`.
    """
    if message.control is not None:
        return
    if message.codec is Codec.NONE:
        yield Record(message.offset, message.timestamp_ms, message.key, message.value)
        return
    inner_set = decompress(message.codec, message.value or b"", magic=MAGIC, limit_bytes=limit_bytes)
    honoured = message.tags is not None and message.tags.relative_offsets_honoured is True
    for index, inner in enumerate(iter_messages(inner_set)):
        if inner.codec is not Codec.NONE:
            raise invalid_record("Inner messages must not be compressed")
        place = inner.offset if honoured else index
        yield Record(message.offset + place, inner.timestamp_ms, inner.key, inner.value)


def seconds_of(timestamp_ms: int) -> int:
    """Return milliseconds as the header's timestamp: whole seconds, -1 for none or beyond int32 (from 2038 on)."""
    seconds = timestamp_ms // MS_PER_SECOND
    return seconds if 0 <= seconds <= INT32_MAX else NO_TIMESTAMP
