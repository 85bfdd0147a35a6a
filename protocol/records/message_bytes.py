"""Reading and writing fields in a buffer: the functions of ``message_bytes.h`` for the kernel in pure Python.

Positions are bytes from the start of the buffer; all numbers are big-endian.
"""

from __future__ import annotations

from struct import Struct

from . import v0, v1, v2

Writable = bytearray | memoryview

INT16 = Struct(">h")
INT32 = Struct(">i")
UINT32 = Struct(">I")
INT64 = Struct(">q")

LEAST_SIZE = (
    v0.LOG_OVERHEAD + v0.MIN_MESSAGE_SIZE,
    v0.LOG_OVERHEAD + v1.MIN_MESSAGE_SIZE,
    v2.HEADER_SIZE,
)
"""The least size of a batch, by magic."""


def int16_at(data: memoryview, position: int) -> int:
    """Return the int16 at `position`."""
    value: int = INT16.unpack_from(data, position)[0]
    return value


def int32_at(data: bytearray | memoryview, position: int) -> int:
    """Return the int32 at `position`."""
    value: int = INT32.unpack_from(data, position)[0]
    return value


def uint32_at(data: memoryview, position: int) -> int:
    """Return the uint32 at `position`."""
    value: int = UINT32.unpack_from(data, position)[0]
    return value


def int64_at(data: bytearray | memoryview, position: int) -> int:
    """Return the int64 at `position`."""
    value: int = INT64.unpack_from(data, position)[0]
    return value


def batch_size_at(data: memoryview, position: int, end: int) -> int:
    """Return the size of the batch at `position`, including its offset and size fields.

    Returns 0 if the batch is incomplete before `end`, -1 if the batch has an impossible magic or size.
    """
    if end - position < v0.ATTRIBUTES_AT:
        return 0
    size = v0.LOG_OVERHEAD + int32_at(data, position + v0.SIZE_AT)
    magic = data[position + v0.MAGIC_AT]
    if magic > v2.MAGIC or size < LEAST_SIZE[magic]:
        return -1
    return size if size <= end - position else 0


def put_int16(out: Writable, position: int, value: int) -> None:
    """Write an int16."""
    INT16.pack_into(out, position, value)


def put_int32(out: Writable, position: int, value: int) -> None:
    """Write an int32."""
    INT32.pack_into(out, position, value)


def put_uint32(out: memoryview, position: int, value: int) -> None:
    """Write a uint32."""
    UINT32.pack_into(out, position, value)


def put_int64(out: Writable, position: int, value: int) -> None:
    """Write an int64."""
    INT64.pack_into(out, position, value)


def put_v0_head(out: memoryview, position: int, offset: int, size: int, attributes: int, key_length: int) -> None:
    """Write the fields of a v0 message up to and with its key length, the CRC left 0."""
    v0.HEADER.pack_into(out, position, offset, size, 0, v0.MAGIC, attributes, key_length)


def put_v1_head(
    out: memoryview, position: int, offset: int, size: int, attributes: int, timestamp: int, key_length: int
) -> None:
    """Write the fields of a v1 message up to and with its key length, the CRC left 0."""
    v1.HEADER.pack_into(out, position, offset, size, 0, v1.MAGIC, attributes, timestamp, key_length)


def put_v2_head(
    out: Writable,
    position: int,
    base_offset: int,
    length: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    record_count: int,
) -> None:
    """Write the header of a v2 batch without a producer id, the CRC left 0; `length` is from byte 12 on."""
    v2.HEADER.pack_into(
        out,
        position,
        base_offset,
        length,
        v2.NO_LEADER_EPOCH,
        v2.MAGIC,
        0,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        v2.NO_PRODUCER_ID,
        v2.NO_PRODUCER_EPOCH,
        v2.NO_SEQUENCE,
        record_count,
    )


def copy_bytes(out: memoryview, position: int, data: memoryview, start: int, size_bytes: int) -> None:
    """Copy `size_bytes` of `data` from `start` on."""
    out[position : position + size_bytes] = data[start : start + size_bytes]
