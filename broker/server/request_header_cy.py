"""Parsing of a request's header in place.

This is ordinary Python that is also compiled: ``request_header_cy.pxd`` has the C types.
"""

from __future__ import annotations

from struct import Struct

from ...protocol.errors import DecodeError

try:
    import cython
except ImportError:
    from ...protocol.records import cython_stand_in as cython

if not cython.compiled:
    from ...protocol.records.message_bytes import int16_at, int32_at

FIXED = Struct(">hhih")  # api key, api version, correlation id, length of the client id
_FIXED_SIZE = FIXED.size


class Header:
    """A request's header; `end` is its end in the frame, without the tagged fields of flexible versions."""

    def __init__(self, api_key: int, api_version: int, correlation_id: int, client_id: str | None, end: int) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.end = end


def parse_header(frame: memoryview, known_bytes: bytes | None = None, known_id: str | None = None) -> Header:
    """Read the fixed part and the client id, which is ``known_id`` if its bytes are ``known_bytes``.

    A negative length is a null client id and bytes that are not UTF-8 are replaced, as in Kafka. Raises DecodeError
    for a frame that is too short.
    """
    if len(frame) < _FIXED_SIZE:
        raise DecodeError(f"a frame of {len(frame)} bytes holds no request header")
    return _parsed(frame, known_bytes, known_id)


def _parsed(frame: memoryview, known_bytes: bytes | None, known_id: str | None) -> Header:
    data = cython.address(frame[0]) if cython.compiled else frame
    length = int16_at(data, 8)
    end = _FIXED_SIZE + max(length, 0)
    if end > len(frame):
        raise DecodeError(f"a client id of {length} bytes runs out of the frame")
    client_id = None
    if length >= 0:
        found = bytes(data[_FIXED_SIZE:end])
        client_id = known_id if known_id is not None and found == known_bytes else str(found, "utf-8", "replace")
    return Header(int16_at(data, 0), int16_at(data, 2), int32_at(data, 4), client_id, end)
