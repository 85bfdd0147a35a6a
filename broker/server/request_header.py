"""Parsing of a request's header in place."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from ...protocol.errors import DecodeError

FIXED = Struct(">hhih")  # api key, api version, correlation id, length of the client id
MAX_VARINT_BITS = 35


class Header(NamedTuple):
    """A request's header; `end` is its end in the frame, without the tagged fields of flexible versions."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    end: int


def parse_header(frame: memoryview) -> Header:
    """Read the fixed part and the client id.

    A negative length is a null client id and bytes that are not UTF-8 are replaced, as in Kafka. Raises DecodeError
    for a frame that is too short.
    """
    if len(frame) < FIXED.size:
        raise DecodeError(f"a frame of {len(frame)} bytes holds no request header")
    key, version, correlation_id, length = FIXED.unpack_from(frame)
    if length < 0:
        return Header(key, version, correlation_id, None, FIXED.size)
    end = FIXED.size + length
    if end > len(frame):
        raise DecodeError(f"a client id of {length} bytes runs out of the frame")
    return Header(key, version, correlation_id, str(frame[FIXED.size : end], "utf-8", "replace"), end)


def skip_tagged_fields(frame: memoryview, position: int) -> int:
    """Return the position after the tagged fields (KIP-482) at ``position``.

    Raises DecodeError if they extend beyond the frame.
    """
    count, position = _unsigned_varint(frame, position)
    for _ in range(count):
        _, position = _unsigned_varint(frame, position)
        size_bytes, position = _unsigned_varint(frame, position)
        position += size_bytes
        if position > len(frame):
            raise DecodeError("a tagged field of the header runs out of the frame")
    return position


def _unsigned_varint(frame: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, MAX_VARINT_BITS, 7):
        if position >= len(frame):
            break
        byte = frame[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise DecodeError("a variable-length number in the header does not end")
