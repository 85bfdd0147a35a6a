"""Zig-zag variable-length integers, as records of format v2 use them (Kafka `ByteUtils`, protobuf's sint32/sint64)."""

from __future__ import annotations

from .record import Buffer

INT32_BYTES = 5
INT64_BYTES = 10
"""The most bytes that an integer of that width takes."""

_INT32_BITS = 2**32 - 1
_INT64_BITS = 2**64 - 1


def append_varint(out: bytearray, value: int) -> None:
    """Append `value` (-2**63 .. 2**63-1) zig-zag encoded, 1 to 10 bytes."""
    unsigned = (value << 1) ^ (value >> 63)
    while unsigned > 0x7F:
        out.append((unsigned & 0x7F) | 0x80)
        unsigned >>= 7
    out.append(unsigned)


def varint_size(value: int) -> int:
    """Return the number of bytes that `append_varint` writes for `value`."""
    unsigned = (value << 1) ^ (value >> 63)
    return max(1, (unsigned.bit_length() + 6) // 7)


def read_varint(buffer: Buffer, position: int, *, max_bytes: int = INT32_BYTES) -> tuple[int, int]:
    """Read one zig-zag integer of at most `max_bytes` (5 for 32 bits, 10 for 64).

    Bits beyond that width are dropped, as Kafka does. Returns (value, position after it).
    Raises ValueError if it is longer, IndexError if the buffer ends first.
    """
    unsigned = 0
    for index in range(max_bytes):
        byte = buffer[position + index]
        unsigned |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            unsigned &= _INT32_BITS if max_bytes == INT32_BYTES else _INT64_BITS
            return (unsigned >> 1) ^ -(unsigned & 1), position + index + 1
    raise ValueError(f"variable-length integer of more than {max_bytes} bytes")
