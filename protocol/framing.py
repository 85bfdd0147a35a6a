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


SMALL_FRAME_BYTES = 4096
"""Frames up to this size are copied, so that the memory that they were received in can be used again."""
LEAST_ROOM_BYTES = 64 * 1024
MOST_ROOM_BYTES = 4 * 1024 * 1024


class FrameReader:
    """A reader of frames from a stream that arrives in arbitrary pieces. Sans-IO.

    Frames are views and never overwritten, so a frame may be kept as long as its records are used. An announced length
    costs no memory; memory grows only with the bytes received, up to one frame and one piece. The driver either gives
    pieces to `feed`, or receives into `room` and calls `received`, which spares a copy.
    """

    __slots__ = ("_buffer", "_consumed", "_filled", "_has_views", "_last_size", "_limit")

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._buffer = bytearray()
        self._consumed = 0
        self._filled = 0
        """The number of bytes in `_buffer` that were received; those behind are room."""
        self._has_views = False
        self._last_size = 0
        """The size of the last frame: the next one is expected to be as large."""

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Add received bytes."""
        if self._has_views:
            # Views refer to the old buffer. Only the start of one frame is copied, and only once.
            self._buffer = self._buffer[self._consumed : self._filled]
            self._filled -= self._consumed
            self._consumed = 0
            self._has_views = False
        self._buffer[self._filled :] = data
        self._filled += len(data)

    def room(self) -> memoryview:
        """Return memory for the next bytes of the stream; the driver releases it and calls `received`.

        Raises DecodeError for an invalid length at the start of an incomplete frame.
        """
        if self._consumed == self._filled and not self._has_views:
            self._consumed = self._filled = 0
        if self._has_views or self._filled == len(self._buffer):
            kept = self._filled - self._consumed
            expected = self._last_size
            if kept >= LENGTH.size:
                expected = frame_size(self._buffer, self._limit, self._consumed)
            # The announced size is believed as far as bytes have been received.
            size = min(expected + LENGTH.size, max(4 * kept, min(self._last_size + LENGTH.size, MOST_ROOM_BYTES)))
            buffer = bytearray(max(size, kept + LEAST_ROOM_BYTES))
            buffer[:kept] = memoryview(self._buffer)[self._consumed : self._filled]
            self._buffer = buffer
            self._consumed = 0
            self._filled = kept
            self._has_views = False
        return memoryview(self._buffer)[self._filled :]

    def received(self, size_bytes: int) -> None:
        """Note that this many bytes were received into `room`."""
        self._filled += size_bytes

    def next_frame(self) -> memoryview | None:
        """Return the next frame without its length, or None until more bytes arrive. Raises as `frame_size` does."""
        start = self._consumed + LENGTH.size
        if self._filled < start:
            return None
        size = frame_size(self._buffer, self._limit, self._consumed)
        end = start + size
        if self._filled < end:
            return None
        self._consumed = end
        self._last_size = size
        if size <= SMALL_FRAME_BYTES and not self._has_views:
            return memoryview(bytes(memoryview(self._buffer)[start:end]))
        self._has_views = True
        return memoryview(self._buffer)[start:end]
