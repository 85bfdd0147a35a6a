"""Unsigned variable-length integers of messages and headers (Kafka `ByteUtils`), and the tagged fields made of them."""

from __future__ import annotations

from .errors import DecodeError

Buffer = bytes | bytearray | memoryview

_SHIFTS = (0, 7, 14, 21, 28)


def encode_unsigned_varint(value: int) -> bytes:
    """Encode a number of 0 and up (Kafka's `ByteUtils.writeUnsignedVarint`)."""
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_unsigned_varint(data: Buffer, position: int) -> tuple[int, int]:
    """Read a number of at most five bytes into a Java int, as Kafka's `ByteUtils.readUnsignedVarint` does.

    Returns (value, position after it). Raises DecodeError if the data end first, or if a sixth byte follows.
    """
    value = 0
    try:
        for shift in _SHIFTS:
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                value &= 0xFFFFFFFF
                return (value if value < 0x80000000 else value - 0x100000000), position
    except IndexError:
        raise DecodeError("a variable-length integer is cut short") from None
    raise DecodeError("unsigned varint of more than 5 bytes")


def skip_tagged_fields(data: Buffer, position: int) -> int:
    """Return the position after tagged fields (KIP-482) at ``position``. Raises DecodeError if the data end first."""
    count, position = read_unsigned_varint(data, position)
    for _ in range(count):
        _, position = read_unsigned_varint(data, position)
        size, position = read_unsigned_varint(data, position)
        if not 0 <= size <= len(data) - position:
            raise DecodeError(f"tagged field: length {size} is not possible here")
        position += size
    return position
