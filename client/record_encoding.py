"""Records of format v2 encoded one at a time, as the accumulator takes them in.

The same layout as `protocol.records.v2` writes for whole batches; here speed per call matters, so the variable-length
integers of common sizes come from a table.
"""

from collections.abc import Sequence

from ..protocol.records.varint import append_varint

Headers = Sequence[tuple[str, bytes | None]]

MAX_RECORD_OVERHEAD = 21
"""Bytes that a record can take beyond its key, value and headers (Kafka DefaultRecord.MAX_RECORD_OVERHEAD)."""

_MAX_LENGTH_BYTES = 5
_TABLE_SIZE = 8192


def _encode_varint(value: int) -> bytes:
    out = bytearray()
    append_varint(out, value)
    return bytes(out)


_VARINTS = [_encode_varint(value) for value in range(_TABLE_SIZE)]


def _varint(value: int) -> bytes:
    return _VARINTS[value] if 0 <= value < _TABLE_SIZE else _encode_varint(value)


def record_size_bound(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """The most bytes that the record can take in a batch of format v2."""
    size = MAX_RECORD_OVERHEAD
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    for name, content in headers:
        # UTF-8 takes at most four bytes a character; the exact count would mean encoding the name twice.
        size += 2 * _MAX_LENGTH_BYTES + (len(name) if name.isascii() else 4 * len(name))
        if content is not None:
            size += len(content)
    return size


def encode_record(
    timestamp_delta: int, offset_delta: int, key: bytes | None, value: bytes | None, headers: Headers
) -> bytes:
    """One record as it stands in a batch, its length first. Deltas are against the batch's base."""
    body = b"".join(
        (
            b"\x00",
            _varint(timestamp_delta),
            _varint(offset_delta),
            b"\x01" if key is None else _varint(len(key)) + key,
            b"\x01" if value is None else _varint(len(value)) + value,
            _encode_headers(headers) if headers else b"\x00",
        )
    )
    return _varint(len(body)) + body


def _encode_headers(headers: Headers) -> bytes:
    parts = [_varint(len(headers))]
    for name, content in headers:
        encoded_name = name.encode()
        parts += (_varint(len(encoded_name)), encoded_name)
        parts += (b"\x01",) if content is None else (_varint(len(content)), content)
    return b"".join(parts)
