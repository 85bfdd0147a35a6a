"""Zig-zag variable-length integers, as records of format v2 use them (Kafka `ByteUtils`, protobuf's sint32/sint64).

The compiled modules have the same functions in C, from `varint.pxd`; this is the truth of the pure build.
"""

from __future__ import annotations

from .record import Buffer

INT32_LAST_SHIFT = 28
INT64_LAST_SHIFT = 63
"""The shift of the last byte of an integer of that width."""

TOO_LONG = -1
INCOMPLETE = -2

_INT32_BITS = 2**32 - 1
_INT64_BITS = 2**64 - 1


def varint_size(value: int) -> int:
    """Return the number of bytes of a number as a zig-zag integer."""
    unsigned = (value << 1) ^ (value >> 63)
    return max(1, (unsigned.bit_length() + 6) // 7)


def put_varint(out: bytearray | memoryview, position: int, value: int) -> int:
    """Write a number (-2**63 .. 2**63-1) as a zig-zag integer of 1 to 10 bytes; return the position after it."""
    unsigned = (value << 1) ^ (value >> 63)
    while unsigned > 0x7F:
        out[position] = (unsigned & 0x7F) | 0x80
        position += 1
        unsigned >>= 7
    out[position] = unsigned
    return position + 1


def varint_at(data: Buffer, position: int, end: int, last_shift: int) -> tuple[int, int]:
    """Return the zig-zag integer at `position`, which ends before `end`, and the position after it.

    Bits beyond the width are dropped, as Kafka does. The position is TOO_LONG if the integer has more bytes than its
    width allows (`last_shift`: INT32_LAST_SHIFT or INT64_LAST_SHIFT), INCOMPLETE if `end` comes first or `position` is
    negative, as after an earlier failure.
    """
    unsigned = 0
    shift = 0
    while shift <= last_shift:
        if position < 0 or position >= end:
            return 0, INCOMPLETE
        byte = data[position]
        position += 1
        unsigned |= (byte & 0x7F) << shift
        if byte < 0x80:
            unsigned &= _INT32_BITS if last_shift == INT32_LAST_SHIFT else _INT64_BITS
            return (unsigned >> 1) ^ -(unsigned & 1), position
        shift += 7
    return 0, TOO_LONG


def encode_varint(value: int) -> bytes:
    """Return a number as `put_varint` writes it."""
    if 0 <= value < len(_SMALL):
        return _SMALL[value]
    out = bytearray(varint_size(value))
    put_varint(out, 0, value)
    return bytes(out)


_SMALL = [bytes([value << 1]) for value in range(64)]
"""The numbers of one byte that are not negative: most lengths and deltas of the broker's own records."""


def read_varint(buffer: Buffer, position: int, *, last_shift: int = INT32_LAST_SHIFT) -> tuple[int, int]:
    """Return the zig-zag integer at `position` and the position after it. Raises ValueError if it does not end."""
    value, after = varint_at(buffer, position, len(buffer), last_shift)
    if after < 0:
        raise ValueError("a variable-length integer that is too long, or cut short")
    return value, after
