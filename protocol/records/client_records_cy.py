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

from .record import Header

if not cython.compiled:
    from .varint import put_varint, varint_at

INT32_LAST_SHIFT = 28
INT64_LAST_SHIFT = 63
TABLE_SIZE = 8192
"""Zig-zag integers below this value are looked up in a table."""


class TruncatedRecordError(ValueError):
    """A record whose fields exceed its length."""


def encode_varint(value: int) -> bytes:
    """Encode a zig-zag variable-length integer of at most 64 bits."""
    out = bytearray(10)
    size_bytes = put_varint(out, 0, value)
    return bytes(out[:size_bytes])


_ATTRIBUTES = b"\x00"
_NULL = encode_varint(-1)
_NO_HEADERS = encode_varint(0)
_VARINTS = [encode_varint(number) for number in range(TABLE_SIZE)]


def _varint(value: int) -> bytes:
    return _VARINTS[value] if 0 <= value < TABLE_SIZE else encode_varint(value)


def encode_record(
    timestamp_delta: int,
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str | bytes, bytes | None]],
) -> bytes:
    """Encode one record of a batch, beginning with its length. Deltas are relative to the batch's base."""
    when = _varint(timestamp_delta)
    place = _varint(offset_delta)
    key_size = value_size = _NULL
    if key is None:
        key = b""
    else:
        key_size = _varint(len(key))
    if value is None:
        value = b""
    else:
        value_size = _varint(len(value))
    tail = _encode_headers(headers) if headers else _NO_HEADERS
    size = 1 + len(when) + len(place) + len(key_size) + len(key) + len(value_size) + len(value) + len(tail)
    return b"".join((_varint(size), _ATTRIBUTES, when, place, key_size, key, value_size, value, tail))


def _encode_headers(headers: Sequence[tuple[str | bytes, bytes | None]]) -> bytes:
    parts = [_varint(len(headers))]
    for name, content in headers:
        encoded_name = name.encode() if isinstance(name, str) else name
        parts += (_varint(len(encoded_name)), encoded_name)
        parts += (b"\x01",) if content is None else (_varint(len(content)), content)
    return b"".join(parts)


def read_number(body: bytes, position: int, end: int, last_shift: int) -> tuple[int, int]:
    """Return the zig-zag integer at `position` and the position after it; see `varint.varint_at`.

    Raises TruncatedRecordError.
    """
    value, after = varint_at(body, position, end, last_shift)
    if after < 0:
        raise TruncatedRecordError("an integer of more bytes than remain")
    return value, after


def decode_records(
    body: bytes,
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

    `append_time`, if given, replaces all timestamps. Raises TruncatedRecordError for malformed bytes.
    """
    records = []
    new = tuple.__new__
    limit = len(body)
    position = 0
    for _ in range(count):
        size, position = read_number(body, position, limit, INT32_LAST_SHIFT)
        end = position + size
        if size < 0 or end > limit:
            raise TruncatedRecordError(f"a record of {size} bytes in {limit - position}")
        timestamp_delta, position = read_number(body, position + 1, end, INT64_LAST_SHIFT)
        offset_delta, position = read_number(body, position, end, INT32_LAST_SHIFT)
        offset = base_offset + offset_delta
        if offset < from_offset:
            position = end
            continue
        key = None
        size, position = read_number(body, position, end, INT32_LAST_SHIFT)
        if size >= 0:
            if size > end - position:
                raise TruncatedRecordError(f"a key of {size} bytes in {end - position}")
            key = body[position : position + size]
            position += size
        value = None
        size, position = read_number(body, position, end, INT32_LAST_SHIFT)
        if size >= 0:
            if size > end - position:
                raise TruncatedRecordError(f"a value of {size} bytes in {end - position}")
            value = body[position : position + size]
            position += size
        size, position = read_number(body, position, end, INT32_LAST_SHIFT)
        headers = _decode_headers(body, position, end, size) if size else ()
        timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
        records.append(
            new(record_class, (topic, partition, offset, timestamp, timestamp_type, key, value, headers, leader_epoch))
        )
        position = end
    return records


def _decode_headers(body: bytes, position: int, end: int, count: int) -> tuple[Header, ...]:
    if not 0 <= count <= end - position:
        raise TruncatedRecordError(f"{count} headers in {end - position} bytes")
    headers = []
    for _ in range(count):
        size, position = read_number(body, position, end, INT32_LAST_SHIFT)
        if not 0 <= size <= end - position:
            raise TruncatedRecordError(f"a header key of {size} bytes in {end - position}")
        name = body[position : position + size]
        position += size
        value = None
        size, position = read_number(body, position, end, INT32_LAST_SHIFT)
        if size >= 0:
            if size > end - position:
                raise TruncatedRecordError(f"a header value of {size} bytes in {end - position}")
            value = body[position : position + size]
            position += size
        headers.append(Header(name, value))
    return tuple(headers)
