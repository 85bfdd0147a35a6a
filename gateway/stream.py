"""An answer of a broker that is read from its connection while it arrives: `Stream`."""

from __future__ import annotations

import contextlib
from struct import Struct
from typing import Protocol

import trio

from ..broker.server.client_connection import ClientGoneError, Hangup
from ..broker.server.parts import Buffer
from ..broker.server.readiness import Readiness
from ..broker.server.receive_buffer_cy import LENGTH
from ..broker.server.transport import WOULD_BLOCK, SocketTransport

UNWATCHED_S = 1.0
"""The time for which the first byte of a stream is awaited before the client's disconnect is awaited as well."""
DISCARDED_BYTES = 64 * 1024
"""Bytes of an answer that is of no use which are read at a time."""
CORRELATION_ID = Struct(">i")
STREAM_HEAD = Struct(">ii")
"""Size and correlation id of an answer."""


class LinkLostError(Exception):
    """An error for an upstream connection that ended before the answer, which the broker may or may not have made."""


class StreamedLink(Protocol):
    """A view of the link whose answer is streamed (a `Link`)."""

    @property
    def node(self) -> int: ...
    def lose(self) -> None: ...
    def close(self) -> None: ...
    def end_stream(self) -> None: ...


class Stream:
    """An answer that is read from the socket as its bytes arrive; `size` is that of its frame."""

    __slots__ = ("_begun", "_limit_bytes", "_link", "_transport", "correlation_id", "readiness", "remaining", "size")

    def __init__(self, link: StreamedLink, transport: SocketTransport, limit_bytes: int, readiness: Readiness) -> None:
        self._link = link
        self._transport = transport
        self._limit_bytes = limit_bytes
        self.readiness = readiness
        self._begun = memoryview(b"")
        """Bytes behind the correlation id that were received already."""
        self.size = 0
        self.correlation_id = 0
        self.remaining = 0
        """Bytes that `read_into` has not returned yet, the correlation id left out."""

    @property
    def node(self) -> int:
        """The node id of the broker."""
        return self._link.node

    def begin(self, received: bytes) -> None:
        """Take the first bytes of the answer, at least its size and correlation id. Raises LinkLostError."""
        self._take_head(received)
        self._begun = memoryview(received)[STREAM_HEAD.size :]

    @property
    def has_begun(self) -> bool:
        """Whether `read_into` returns bytes that were received before, before those in the socket."""
        return len(self._begun) > 0

    async def read_head(self, hangup: Hangup) -> None:
        """Read the size and the correlation id.

        Raises LinkLostError, and ClientGoneError if the client disconnects first.
        """
        try:
            await self._read_head(hangup)
        except BaseException:
            self._link.close()
            raise

    async def read_all(self) -> bytearray:
        """Return the frame of the answer, read to its end. Raises LinkLostError."""
        frame = bytearray(self.size)
        CORRELATION_ID.pack_into(frame, 0, self.correlation_id)
        with memoryview(frame) as view:
            position = CORRELATION_ID.size
            while count := await self.read_into(view[position:]):
                position += count
        return frame

    async def discard(self) -> None:
        """Read the answer to its end and drop it. Raises LinkLostError."""
        with memoryview(bytearray(DISCARDED_BYTES)) as space:
            while await self.read_into(space):
                pass

    async def _read_head(self, hangup: Hangup) -> None:
        head = memoryview(bytearray(STREAM_HEAD.size))
        count = await self._first_bytes(head, hangup)
        while count < STREAM_HEAD.size:
            count += await self._some(head[count:])
        self._take_head(head)

    def _take_head(self, head: Buffer) -> None:
        self.size, self.correlation_id = STREAM_HEAD.unpack_from(head)
        self.remaining = self.size - LENGTH.size
        if not 0 <= self.remaining <= self._limit_bytes:
            self._link.lose()
            raise LinkLostError(f"broker {self.node} announced an answer of {self.size} bytes")

    async def read_into(self, space: memoryview) -> int:
        """Read up to ``len(space)`` bytes of the answer and return their number, 0 at its end. Raises LinkLostError."""
        if self.remaining == 0:
            return 0
        if self._begun:
            count = min(len(self._begun), len(space))
            space[:count] = self._begun[:count]
            self._begun = self._begun[count:]
            self.remaining -= count
            return count
        count = await self._some(space[: self.remaining])
        self.remaining -= count
        return count

    @property
    def descriptor(self) -> int | None:
        """The descriptor of the socket if its bytes are those of the answer (see `took`), else None."""
        return self._transport.descriptor if self._transport.is_plain else None

    def took(self, size_bytes: int) -> None:
        """Count bytes that others took from the socket, behind those that had been received before."""
        self.remaining -= size_bytes

    def lost(self, reason: object) -> LinkLostError:
        """End the link, whose socket has failed, and return the error."""
        self._link.lose()
        return LinkLostError(f"broker {self.node}: {reason}")

    async def wait_readable(self, most_bytes: int) -> None:
        """Wait until ``most_bytes`` have arrived, which must be on their way. Raises LinkLostError."""
        try:
            self._transport.wake_at(most_bytes)
            if not self.readiness.wait_alone(self._transport.descriptor):
                await trio.lowlevel.wait_readable(self._transport.descriptor)
        except (OSError, trio.ClosedResourceError) as error:
            raise self.lost(error) from error

    def end(self) -> None:
        """Give the link back; a link whose answer was not read completely is closed."""
        if self.remaining:
            self._link.close()
        self._link.end_stream()

    async def _first_bytes(self, space: memoryview, hangup: Hangup) -> int:
        with trio.move_on_after(UNWATCHED_S):
            return await self._some(space)
        is_readable = False
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_at_hangup, hangup, nursery.cancel_scope)
            with contextlib.suppress(trio.ClosedResourceError):
                await trio.lowlevel.wait_readable(self._transport.descriptor)
                is_readable = True
            nursery.cancel_scope.cancel()
        if not is_readable:
            raise ClientGoneError("disconnected while its request was pending")
        return await self._some(space)

    async def _some(self, space: memoryview) -> int:
        try:
            while (count := self._transport.receive_now(space)) == WOULD_BLOCK:
                await self.wait_readable(len(space))
        except OSError as error:
            raise self.lost(error) from error
        if count == 0:
            raise self.lost("closed the connection")
        return count


async def _cancel_at_hangup(hangup: Hangup, scope: trio.CancelScope) -> None:
    await hangup.wait()
    scope.cancel()
