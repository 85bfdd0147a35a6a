"""What an answer is made of: parts with an exact size, and the sink that holds them to it.

A part has two members. ``size`` is known before the first byte of the answer is sent, since the frame's length goes
first; ``send_to(sink)`` delivers exactly so many bytes, in as little memory as it can. Plain ``bytes`` are parts too
(the connection sends them as they are); `Encoded`, `FileSlice` and `LazyConvertRecords` (in `replicas/fetching/`)
are the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from ...storage.log.partition_log import LogSlice

Buffer: TypeAlias = bytes | bytearray | memoryview
BUFFERS = (bytes, bytearray, memoryview)


class Outlet(Protocol):
    """The way to one client, as a `Sink` needs it."""

    async def send(self, data: Buffer, *, before_wait: Callable[[], None] | None = None) -> None:
        """Send all of ``data``, now or together with what follows.

        With ``before_wait`` the data is borrowed: what is unsent is copied before the first wait, then that is called.
        """

    async def send_file(self, descriptor: int, position: int, size_bytes: int) -> None:
        """Send a stretch of a file without reading it into this process."""


class BrokenPromiseError(Exception):
    """A part delivered more or fewer bytes than the frame's length announced: the client's stream is lost."""


class Sink:
    """Takes the bytes of one answer and keeps count of what was promised.

    Too many bytes raise inside the send, before they reach the client; too few raise in `finish`.
    """

    __slots__ = ("_outlet", "_remaining_bytes")

    def __init__(self, outlet: Outlet, promised_bytes: int) -> None:
        self._outlet = outlet
        self._remaining_bytes = promised_bytes

    @property
    def remaining_bytes(self) -> int:
        """How many of the promised bytes have not been handed over yet."""
        return self._remaining_bytes

    async def write(self, data: Buffer) -> None:
        """Send ``data``, which must not change afterwards."""
        self._take(len(data))
        await self._outlet.send(data)

    async def write_borrowed(self, data: Buffer, before_wait: Callable[[], None]) -> None:
        """Send ``data`` out of a buffer that others write to while this task waits.

        Before it waits, what is unsent is copied and ``before_wait`` called, to let go of other borrowed things.
        """
        self._take(len(data))
        await self._outlet.send(data, before_wait=before_wait)

    async def send_file(self, descriptor: int, position: int, size_bytes: int) -> None:
        """Send ``size_bytes`` of the open file from ``position`` on, by sendfile(2) where the transport can."""
        self._take(size_bytes)
        await self._outlet.send_file(descriptor, position, size_bytes)

    def finish(self) -> None:
        """Check that all that was promised has been sent.

        Raises BrokenPromiseError on a shortfall.
        """
        if self._remaining_bytes:
            raise BrokenPromiseError(f"an answer ended {self._remaining_bytes} bytes short of its promised size")

    def _take(self, size_bytes: int) -> None:
        if size_bytes > self._remaining_bytes:
            raise BrokenPromiseError(f"an answer ran {size_bytes - self._remaining_bytes} bytes over its promised size")
        self._remaining_bytes -= size_bytes


class Part(Protocol):
    """A piece of an answer whose bytes need not exist yet."""

    @property
    def size(self) -> int:
        """Exact number of bytes that `send_to` will deliver."""

    async def send_to(self, sink: Sink) -> None:
        """Deliver them."""


class Encoded:
    """Bytes that are there already."""

    __slots__ = ("_data",)

    def __init__(self, data: Buffer) -> None:
        self._data = data

    @property
    def size(self) -> int:
        return len(self._data)

    async def send_to(self, sink: Sink) -> None:
        await sink.write(self._data)


class FileSlice:
    """A stretch of a segment, sent from the page cache to the socket (zero copy)."""

    __slots__ = ("_slice",)

    def __init__(self, log_slice: LogSlice) -> None:
        self._slice = log_slice

    @property
    def size(self) -> int:
        return self._slice.size_bytes

    async def send_to(self, sink: Sink) -> None:
        with self._slice as held:
            await sink.send_file(held.descriptor, held.position, held.size_bytes)


Answer: TypeAlias = Sequence[Buffer | Part]
"""One response without its length prefix, in the order of the wire."""


def total_size(answer: Answer) -> int:
    """Sum of the parts' sizes in bytes."""
    return sum(len(part) if isinstance(part, BUFFERS) else part.size for part in answer)
