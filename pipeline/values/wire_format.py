"""Confluent's wire format: a zero byte, the schema's id (4 bytes, big-endian), and for Protobuf the message's place.

Source: Confluent Schema Registry, "Wire format".
"""

from __future__ import annotations

from struct import Struct

HEADER = Struct(">bi")
MAGIC = 0
LONGEST_VARINT_BYTES = 5
MOST_INDEXES = 64
"""The deepest nesting of messages that is read; protoc allows 32 levels."""


class WireFormatError(ValueError):
    """A value that is not in Confluent's wire format."""


def split_header(value: bytes) -> tuple[int, int]:
    """Return the schema's id and the position after the header. Raises WireFormatError."""
    if len(value) < HEADER.size or value[0] != MAGIC:
        raise WireFormatError("no header of Confluent's wire format")
    _, number = HEADER.unpack_from(value)
    return number, HEADER.size


def read_message_indexes(value: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """Return the indexes of a Protobuf message in its schema, outermost first, and the position after them.

    A count of 0 stands for the first message. Raises WireFormatError.
    """
    count, at = _read_zigzag(value, at)
    if not 0 <= count <= MOST_INDEXES:
        raise WireFormatError(f"{count} message indexes")
    indexes = []
    for _ in range(count):
        index, at = _read_zigzag(value, at)
        indexes.append(index)
    return tuple(indexes) or (0,), at


def write_header(number: int, message_indexes: tuple[int, ...] = ()) -> bytes:
    """Return the header of a value; with `message_indexes` that of a Protobuf message."""
    header = HEADER.pack(MAGIC, number)
    if not message_indexes:
        return header
    if message_indexes == (0,):
        return header + b"\0"
    return header + b"".join(map(_zigzag, (len(message_indexes), *message_indexes)))


def _read_zigzag(value: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 7 * LONGEST_VARINT_BYTES, 7):
        if at >= len(value):
            raise WireFormatError("the message indexes are cut off")
        byte = value[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return (number >> 1) ^ -(number & 1), at
    raise WireFormatError("a message index of more than 5 bytes")


def _zigzag(number: int) -> bytes:
    left, found = (number << 1) ^ (number >> 31), bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])
