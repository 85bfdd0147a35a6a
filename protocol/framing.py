"""Length-prefixed frames of a byte stream: an int32 size, then that many bytes, as on every Kafka connection."""

from __future__ import annotations

from struct import Struct

from .errors import DecodeError

LENGTH = Struct(">i")


def frame_size(prefix: bytes | bytearray | memoryview, limit_bytes: int, position: int = 0) -> int:
    """Return the size of the frame whose length field is at ``position``, without the length field.

    Raises DecodeError if the length is negative or above the limit; the stream cannot be read after that.
    """
    (size,) = LENGTH.unpack_from(prefix, position)
    if not 0 <= size <= limit_bytes:
        raise DecodeError(f"a frame of {size} bytes, where 0 to {limit_bytes} are allowed")
    return int(size)


class FrameReader:
    """A reader of frames from a stream that arrives in arbitrary pieces. Sans-IO.

    Frames are views and never overwritten, so a frame may be kept as long as its records are used. An announced length
    costs no memory; memory grows only with the bytes received, up to one frame and one piece.
    """

    __slots__ = ("_buffer", "_consumed", "_has_views", "_limit")

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._buffer = bytearray()
        self._consumed = 0
        self._has_views = False

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Add received bytes."""
        if self._has_views:
            # Views refer to the old buffer. Only the start of one frame is copied, and only once.
            self._buffer = self._buffer[self._consumed :]
            self._consumed = 0
            self._has_views = False
        self._buffer += data

    def next_frame(self) -> memoryview | None:
        """Return the next frame without its length, or None until more bytes arrive. Raises as `frame_size` does."""
        start = self._consumed + LENGTH.size
        if len(self._buffer) < start:
            return None
        size = frame_size(self._buffer, self._limit, self._consumed)
        if len(self._buffer) < start + size:
            return None
        self._consumed = start + size
        self._has_views = True
        return memoryview(self._buffer)[start : self._consumed]
