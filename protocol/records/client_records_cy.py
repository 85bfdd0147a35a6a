"""Records of format v2 as a client writes and reads them, one Python object each: the hot loops of `client/`.

A broker never needs these: it checks and converts batches without making objects (`walk_cy.py`, `kernel_cy.py`). This
file is plain Python; `client_records_cy.pxd` beside it gives its variables C types for whoever compiles it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .record import Header

TABLE_SIZE = 8192
"""Zig-zag integers from 0 up to here are looked up and not computed."""


class TruncatedRecordError(ValueError):
    """A record's fields do not fit into it."""


def encode_varint(value: int) -> bytes:
    """One zig-zag variable-length integer, of 64 bits at most."""
    unsigned = (value << 1) ^ (value >> 63)
    out = []
    while unsigned > 0x7F:
        out.append((unsigned & 0x7F) | 0x80)
        unsigned >>= 7
    out.append(unsigned)
    return bytes(out)


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
    """One record as it stands in a batch, its length first. Deltas are against the batch's base."""
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


def read_number(body: bytes, position: int, end: int) -> tuple[int, int]:
    """The zig-zag integer at `position` (10 bytes at most) and the position after it. Raises TruncatedRecordError."""
    value = 0
    shift = 0
    while position < end and shift < 70:
        byte = body[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
    raise TruncatedRecordError("a number that does not end")


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
    """The `count` records in `body` from offset `from_offset` on, as `record_class` (of the consumer's nine fields).

    `append_time` takes the place of all time stamps if it is given. Raises TruncatedRecordError for malformed bytes.
    """
    records = []
    new = tuple.__new__
    limit = len(body)
    position = 0
    for _ in range(count):
        size, position = read_number(body, position, limit)
        end = position + size
        if size < 0 or end > limit:
            raise TruncatedRecordError(f"a record of {size} bytes in {limit - position}")
        timestamp_delta, position = read_number(body, position + 1, end)
        offset_delta, position = read_number(body, position, end)
        offset = base_offset + offset_delta
        if offset < from_offset:
            position = end
            continue
        key = None
        size, position = read_number(body, position, end)
        if size >= 0:
            if size > end - position:
                raise TruncatedRecordError(f"a key of {size} bytes in {end - position}")
            key = body[position : position + size]
            position += size
        value = None
        size, position = read_number(body, position, end)
        if size >= 0:
            if size > end - position:
                raise TruncatedRecordError(f"a value of {size} bytes in {end - position}")
            value = body[position : position + size]
            position += size
        size, position = read_number(body, position, end)
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
        size, position = read_number(body, position, end)
        if not 0 <= size <= end - position:
            raise TruncatedRecordError(f"a header key of {size} bytes in {end - position}")
        name = body[position : position + size]
        position += size
        value = None
        size, position = read_number(body, position, end)
        if size >= 0:
            if size > end - position:
                raise TruncatedRecordError(f"a header value of {size} bytes in {end - position}")
            value = body[position : position + size]
            position += size
        headers.append(Header(name, value))
    return tuple(headers)
