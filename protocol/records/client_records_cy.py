"""Encoding and decoding of v2 records as Python objects: the hot loops of `client/`.

The broker does not use these functions: it checks and converts batches without objects (`walk_cy.py`, `kernel_cy.py`).
This file is plain Python; `client_records_cy.pxd` has the C types of its variables for the compiler.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

try:
    import cython
except ImportError:
    from . import cython_stand_in as cython

from .record import Buffer, Header

if not cython.compiled:
    from .checksum_libraries import crc32c_of
    from .message_bytes import batch_size_at, int16_at, int32_at, int64_at, uint32_at
    from .varint import put_varint, varint_at, varint_size

    def hide_from_collector(record: object) -> None:
        """Do nothing; where this module is compiled, `PyObject_GC_UnTrack` is called instead."""

    def resize(body: bytearray, size_bytes: int) -> None:
        """Cut or extend `body` to `size_bytes`; compiled, the added bytes have any values."""
        del body[size_bytes:]
        body.extend(bytes(size_bytes - len(body)))

    def bytes_between(data: Buffer, start: int, end: int) -> bytes:
        """Return a copy of the bytes from `start` to `end`."""
        return bytes(data[start:end])

    def put_bytes(out: bytearray, position: int, data: bytes | None) -> int:
        """Write `data` at `position`, nothing for None; return the position after it."""
        size_bytes = 0 if data is None else len(data)
        out[position : position + size_bytes] = data or b""
        return position + size_bytes


INT32_LAST_SHIFT = 28
INT64_LAST_SHIFT = 63
TABLE_SIZE = 8192
"""Zig-zag integers below this value are looked up in a table."""


HEADER_SIZE = 61
CRC_AT = 17
MAGIC_AT = 16
ATTRIBUTES_AT = 21
LOG_APPEND_TIME_FLAG = 0x08
PLAIN_FLAGS = 0x48
"""The attributes that a plain batch may have: LogAppendTime, and a delete horizon."""


class TruncatedRecordError(ValueError):
    """A record whose fields exceed its length."""


def encode_varint(value: int) -> bytes:
    """Encode a zig-zag variable-length integer of at most 64 bits."""
    out = bytearray(10)
    size_bytes = put_varint(out, 0, value)
    return bytes(out[:size_bytes])


_NO_HEADERS = encode_varint(0)
_VARINTS = [encode_varint(number) for number in range(TABLE_SIZE)]


def _varint(value: int) -> bytes:
    return _VARINTS[value] if 0 <= value < TABLE_SIZE else encode_varint(value)


def append_record(
    body: bytearray,
    timestamp_delta: int,
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str | bytes, bytes | None]],
) -> int:
    """Append one record of a batch to `body`, beginning with its length, and return the record's size in bytes.

    Deltas are relative to the batch's base. Raises TypeError or AttributeError for a key, value or header of another
    type, and leaves `body` unchanged then.
    """
    tail = _encode_headers(headers) if headers else _NO_HEADERS
    key_length = -1 if key is None else len(key)
    value_length = -1 if value is None else len(value)
    size = (
        1
        + varint_size(timestamp_delta)
        + varint_size(offset_delta)
        + varint_size(key_length)
        + max(key_length, 0)
        + varint_size(value_length)
        + max(value_length, 0)
        + len(tail)
    )
    start = len(body)
    end = start + varint_size(size) + size
    resize(body, end)
    data = cython.cast(cython.p_uchar, body) if cython.compiled else body
    position = put_varint(data, start, size)
    data[position] = 0
    position = put_varint(data, position + 1, timestamp_delta)
    position = put_varint(data, position, offset_delta)
    position = put_varint(data, position, key_length)
    position = put_bytes(data, position, key)
    position = put_varint(data, position, value_length)
    position = put_bytes(data, position, value)
    put_bytes(data, position, tail)
    return end - start


def _encode_headers(headers: Sequence[tuple[str | bytes, bytes | None]]) -> bytes:
    parts = [_varint(len(headers))]
    for name, content in headers:
        encoded_name = name.encode() if isinstance(name, str) else name
        parts += (_varint(len(encoded_name)), encoded_name)
        parts += (b"\x01",) if content is None else (_varint(len(content)), content)
    return b"".join(parts)


def read_number(body: Buffer, position: int, end: int, last_shift: int) -> tuple[int, int]:
    """Return the zig-zag integer at `position` and the position after it; see `varint.varint_at`.

    Raises TruncatedRecordError.
    """
    value, after = varint_at(body, position, end, last_shift)
    if after < 0:
        raise TruncatedRecordError("an integer of more bytes than remain")
    return value, after


def decode_records(
    body: Buffer,
    count: int,
    base_offset: int,
    base_timestamp: int,
    append_time: int | None,
    from_offset: int,
    record_class: type[tuple[Any, ...]],
    topic: str,
    partition: int,
    timestamp_type: object,
    leader_epoch: int,
) -> list[Any]:
    """Decode `count` records in `body` from offset `from_offset` on as `record_class` (the consumer's nine fields).

    `append_time`, if given, replaces all timestamps. Records refer to nothing that could refer to them, so that the
    garbage collector need not see them. Raises TruncatedRecordError for malformed bytes.
    """
    records = []
    new = tuple.__new__
    limit = len(body)
    data = cython.address(body[0]) if cython.compiled else body
    position = 0
    for _ in range(count):
        size, position = read_number(data, position, limit, INT32_LAST_SHIFT)
        end = position + size
        if size < 0 or end > limit:
            raise TruncatedRecordError(f"a record of {size} bytes in {limit - position}")
        timestamp_delta, position = read_number(data, position + 1, end, INT64_LAST_SHIFT)
        offset_delta, position = read_number(data, position, end, INT32_LAST_SHIFT)
        offset = base_offset + offset_delta
        if offset < from_offset:
            position = end
            continue
        key = None
        size, position = read_number(data, position, end, INT32_LAST_SHIFT)
        if size >= 0:
            if size > end - position:
                raise TruncatedRecordError(f"a key of {size} bytes in {end - position}")
            key = bytes_between(data, position, position + size)
            position += size
        value = None
        size, position = read_number(data, position, end, INT32_LAST_SHIFT)
        if size >= 0:
            if size > end - position:
                raise TruncatedRecordError(f"a value of {size} bytes in {end - position}")
            value = bytes_between(data, position, position + size)
            position += size
        size, position = read_number(data, position, end, INT32_LAST_SHIFT)
        headers = _decode_headers(data, position, end, size) if size else ()
        timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
        record = new(
            record_class, (topic, partition, offset, timestamp, timestamp_type, key, value, headers, leader_epoch)
        )
        hide_from_collector(record)
        records.append(record)
        position = end
    return records


def decode_plain_batch(
    data: memoryview,
    position: int,
    checks_crc: bool,
    from_offset: int,
    record_class: type[tuple[Any, ...]],
    topic: str,
    partition: int,
    create_time: object,
    log_append_time: object,
) -> tuple[list[Any], int, int] | None:
    """Decode the batch at `position` as `decode_records` does, if it is plain: of format v2, complete, with the right
    CRC, not compressed, and neither transactional nor a control batch.

    Returns the records, the position after the batch and the offset after it; None for any other batch, which is to be
    read through a `BatchView`. `create_time` and `log_append_time` are the two timestamp types. Raises
    TruncatedRecordError as `decode_records`.
    """
    end = len(data)
    if end - position < HEADER_SIZE or data[position + MAGIC_AT] != 2:
        return None
    source = cython.address(data[0]) if cython.compiled else data
    size = batch_size_at(source, position, end)
    if size < HEADER_SIZE:
        return None
    end = position + size
    attributes = int16_at(source, position + ATTRIBUTES_AT)
    count = int32_at(source, position + 57)
    last_offset = int64_at(source, position) + int32_at(source, position + 23)
    if attributes & ~PLAIN_FLAGS or count < 0 or last_offset < from_offset:
        return None
    if checks_crc and crc32c_of(source, position + ATTRIBUTES_AT, end) != uint32_at(source, position + CRC_AT):
        return None
    is_append_time = attributes & LOG_APPEND_TIME_FLAG
    records = decode_records(
        data[position + HEADER_SIZE : end],
        count,
        int64_at(source, position),
        int64_at(source, position + 27),
        int64_at(source, position + 35) if is_append_time else None,
        from_offset,
        record_class,
        topic,
        partition,
        log_append_time if is_append_time else create_time,
        int32_at(source, position + 12),
    )
    return records, end, last_offset + 1


def _decode_headers(data: Buffer, position: int, end: int, count: int) -> tuple[Header, ...]:
    if not 0 <= count <= end - position:
        raise TruncatedRecordError(f"{count} headers in {end - position} bytes")
    headers = []
    for _ in range(count):
        size, position = read_number(data, position, end, INT32_LAST_SHIFT)
        if not 0 <= size <= end - position:
            raise TruncatedRecordError(f"a header key of {size} bytes in {end - position}")
        name = bytes_between(data, position, position + size)
        position += size
        value = None
        size, position = read_number(data, position, end, INT32_LAST_SHIFT)
        if size >= 0:
            if size > end - position:
                raise TruncatedRecordError(f"a header value of {size} bytes in {end - position}")
            value = bytes_between(data, position, position + size)
            position += size
        headers.append(Header(name, value))
    return tuple(headers)
