"""Jute, ZooKeeper's serialization: big-endian numbers, and strings, buffers and vectors behind a 32-bit length.

Lengths from the network are claims: nothing is allocated by a length, and each length is compared with the bytes that
have arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from struct import Struct
from typing import TypeVar

T = TypeVar("T")

BOOLEAN = Struct(">?")
INT = Struct(">i")
LONG = Struct(">q")
NULL_LENGTH = -1
"""The length of a missing string, buffer or vector."""


class JuteError(ValueError):
    """An error for bytes that are not the record that was expected."""


class JuteReader:
    """A reader of one frame, which raises JuteError where the frame ends early or a length is impossible."""

    def __init__(self, frame: bytes | memoryview) -> None:
        self._frame = memoryview(frame)
        self._position = 0

    @property
    def remaining_bytes(self) -> int:
        """The number of bytes that have not been read."""
        return len(self._frame) - self._position

    def read_boolean(self) -> bool:
        """Read a boolean: any byte but 0 is true, as in Java's `DataInput.readBoolean`."""
        return bool(self._take(1)[0])

    def read_int(self) -> int:
        """Read a signed number of 32 bits."""
        return int(INT.unpack(self._take(INT.size))[0])

    def read_long(self) -> int:
        """Read a signed number of 64 bits."""
        return int(LONG.unpack(self._take(LONG.size))[0])

    def read_buffer(self) -> bytes | None:
        """Read bytes behind their length, None for the length -1."""
        length = self.read_int()
        if length == NULL_LENGTH:
            return None
        if length < 0:
            raise JuteError(f"a length of {length}")
        return bytes(self._take(length))

    def read_string(self) -> str:
        """Read UTF-8 text behind its length; a missing string is empty."""
        data = self.read_buffer()
        try:
            return (data or b"").decode()
        except UnicodeDecodeError as error:
            raise JuteError("a string is not UTF-8") from error

    def read_vector(self, element: Callable[[], T], least_element_bytes: int) -> list[T]:
        """Read elements behind their count; each must take at least `least_element_bytes` of the frame."""
        count = self.read_int()
        if count == NULL_LENGTH:
            return []
        if not 0 <= count <= self.remaining_bytes // least_element_bytes:
            raise JuteError(f"a vector of {count} elements in {self.remaining_bytes} bytes")
        return [element() for _ in range(count)]

    def _take(self, count: int) -> memoryview:
        if count > self.remaining_bytes:
            raise JuteError(f"{count} bytes expected, {self.remaining_bytes} left")
        start = self._position
        self._position += count
        return self._frame[start : self._position]


def encode_buffer(data: bytes | None) -> bytes:
    """Return bytes behind their length, which is -1 for None."""
    return INT.pack(NULL_LENGTH) if data is None else INT.pack(len(data)) + data


def encode_string(text: str) -> bytes:
    """Return text in UTF-8 behind its length in bytes."""
    return encode_buffer(text.encode())


def encode_strings(texts: Iterable[str]) -> bytes:
    """Return a vector of strings."""
    encoded = [encode_string(text) for text in texts]
    return INT.pack(len(encoded)) + b"".join(encoded)
