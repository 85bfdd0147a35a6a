"""The receive buffer of one client: it grows only as bytes really arrive.

This is ordinary Python that is also compiled: ``receive_buffer_cy.pxd`` has the C types.
"""

from __future__ import annotations

import os
from errno import EAGAIN
from struct import Struct

try:
    import cython
except ImportError:
    from ...protocol.records import cython_stand_in as cython

if not cython.compiled:
    from ...protocol.records.message_bytes import int32_at
    from .socket_calls import receive_bytes

LENGTH = Struct(">i")
WOULD_BLOCK = -1
"""The result of a read from a socket if no bytes have arrived."""
INITIAL_BYTES = 4096
STREAMING_BYTES = 128 * 1024
"""A client that keeps filling its buffer gets one of up to this size, which saves system calls."""
KEPT_BYTES = 1 << 20
"""A buffer larger than this is released once it is empty."""
_EAGAIN = EAGAIN
_WOULD_BLOCK = WOULD_BLOCK


class InvalidFrameError(ValueError):
    """An error for an announced length that is negative or above ``socket.request.max.bytes``.

    Kafka: InvalidReceiveException.
    """


class ReceiveBuffer:
    """A buffer that splits a byte stream into length-prefixed frames without copying them.

    Invariant: ``consumed <= received <= capacity``; a frame lies in one piece between consumed and received. Frames are
    views into the buffer: they are valid until `space` is called. An announced length allocates nothing; the buffer at
    most doubles each time that it has really been filled.
    """

    def __init__(self, frame_limit_bytes: int) -> None:
        self._frame_limit = frame_limit_bytes
        self._buffer = bytearray(INITIAL_BYTES)
        self.view = memoryview(self._buffer)
        """The buffer's memory, valid until `space` is called."""
        self.octets = self.view
        """The same with its C type, as which it can be passed on without another object."""
        self.consumed = 0
        """The place of the first byte that is not consumed."""
        self._received = 0

    def limit_frames(self, frame_limit_bytes: int) -> None:
        """Set another limit for the frames from now on."""
        self._frame_limit = frame_limit_bytes

    @property
    def capacity_bytes(self) -> int:
        """The memory held for this client, in bytes."""
        return len(self._buffer)

    def is_empty(self) -> bool:
        """Return whether the buffer has no bytes: the client is between two requests."""
        return self.consumed == self._received

    def space(self) -> memoryview:
        """Return the free space for the next bytes, at least one byte. Frames returned before become invalid."""
        self._free_space()
        return self.view[self._received :]

    def receive(self, descriptor: int) -> int:
        """Read available bytes of a plain, non-blocking socket into `space`; return their number.

        It is 0 at the end of the stream, and `WOULD_BLOCK` if no bytes have arrived. Raises OSError.
        """
        self._free_space()
        count = receive_bytes(descriptor, self._buffer, self._received)
        if count >= 0:
            self._received += count
            return count
        if count != -_EAGAIN:
            raise OSError(-count, os.strerror(-count))
        return _WOULD_BLOCK

    def is_full(self) -> bool:
        """Return whether the last bytes filled the space, so that the socket may have more."""
        return self._received == len(self._buffer)

    def _free_space(self) -> None:
        """Make room for at least one byte."""
        if self._received == len(self._buffer):
            self._make_room()
        elif self.consumed == self._received:
            self.consumed = self._received = 0
            if len(self._buffer) > KEPT_BYTES:
                self._replace(INITIAL_BYTES)

    def received(self, count: int) -> None:
        """Record that ``count`` bytes were written to `space`."""
        self._received += count

    def frame_end(self) -> int:
        """Return the end of the next frame, whose length is at `consumed`; 0 if more bytes are needed.

        Raises InvalidFrameError as soon as its length is known.
        """
        start = self.consumed + 4
        if start > self._received:
            return 0
        size_bytes = int32_at(self._buffer, self.consumed)
        if not 0 <= size_bytes <= self._frame_limit:
            raise InvalidFrameError(f"frame of {size_bytes} bytes, the limit is {self._frame_limit}")
        end = start + size_bytes
        return 0 if end > self._received else end

    def consume(self, end: int) -> None:
        """Take out all bytes before ``end``, which is a `frame_end`."""
        self.consumed = end

    def next_frame(self) -> memoryview | None:
        """Return the next complete frame without its length, or None if more bytes are needed.

        Raises InvalidFrameError as `frame_end` does.
        """
        end = self.frame_end()
        if end == 0:
            return None
        start = self.consumed + 4
        self.consumed = end
        return self.view[start:end]

    def shrink(self) -> None:
        """Release memory that an idle client does not need."""
        if self.is_empty() and len(self._buffer) > INITIAL_BYTES:
            self.consumed = self._received = 0
            self._replace(INITIAL_BYTES)

    def _make_room(self) -> None:
        """Make room in a full buffer: move an incomplete frame to its start; grow for large frames or busy clients."""
        pending = self._received - self.consumed
        capacity = len(self._buffer)
        if pending > capacity // 2:
            self._replace(min(2 * capacity, max(self._frame_limit + 4, 2 * INITIAL_BYTES)))
        elif capacity < STREAMING_BYTES:
            self._replace(2 * capacity)
        elif capacity > KEPT_BYTES and not pending:
            self._replace(INITIAL_BYTES)
        else:
            self.view[:pending] = self.view[self.consumed : self._received]
            self.consumed, self._received = 0, pending

    def _replace(self, capacity: int) -> None:
        buffer = bytearray(capacity)
        pending = self.view[self.consumed : self._received]
        buffer[: len(pending)] = pending
        self._received = len(pending)
        self.consumed = 0
        self._buffer = buffer
        self.view = self.octets = memoryview(buffer)
