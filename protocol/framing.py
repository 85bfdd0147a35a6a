"""Length-prefixed frames out of a byte stream: an int32 size, then that many bytes, as on every Kafka connection."""

from __future__ import annotations

from struct import Struct

from .errors import DecodeError

LENGTH = Struct(">i")


class FrameReader:
    """Cuts a stream that arrives in arbitrary pieces into frames. Sans-IO.

    Frames are views and never overwritten: one may be kept for as long as its records are used. What a peer announces
    costs nothing; memory grows only with the bytes that have really arrived, up to one frame and one piece.
    Of the stream's positions, always `consumed <= complete <= received`: a frame is handed out once it is whole.
    """

    __slots__ = ("_buffer", "_consumed", "_has_views", "_limit")

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._buffer = bytearray()
        self._consumed = 0
        self._has_views = False

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Take in what has arrived."""
        if self._has_views:
            # Those views pin the old buffer. Only the start of one frame moves, and only once.
            self._buffer = self._buffer[self._consumed :]
            self._consumed = 0
            self._has_views = False
        self._buffer += data

    def next_frame(self) -> memoryview | None:
        """Return the next frame without its length, or None until more bytes arrive.

        Raises DecodeError if the length is negative or above the limit; the stream cannot be read on after that.
        """
        start = self._consumed + LENGTH.size
        if len(self._buffer) < start:
            return None
        (size,) = LENGTH.unpack_from(self._buffer, self._consumed)
        if not 0 <= size <= self._limit:
            raise DecodeError(f"a frame of {size} bytes, where 0 to {self._limit} are allowed")
        if len(self._buffer) < start + size:
            return None
        self._consumed = start + size
        self._has_views = True
        return memoryview(self._buffer)[start : self._consumed]
