"""The parts of an answer, each with an exact size, and the sink that enforces the sizes.

A part has two members. ``size`` is known before the first byte of the answer is sent, since the frame's length comes
first; ``send_to(sink)`` sends exactly that many bytes, with as little memory as possible. Plain ``bytes`` are parts too
(the connection sends them directly); `Encoded`, `FileSlice` and `LazyConvertRecords` (in `replicas/fetching/`) are the
others.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast

if TYPE_CHECKING:
    from ...storage.log.partition_log import LogSlice
    from .bulk_rows import BulkRows

Buffer: TypeAlias = bytes | bytearray | memoryview
BUFFERS = (bytes, bytearray, memoryview)


class Outlet(Protocol):
    """An outlet to one client, as a `Sink` uses it."""

    def gather(self, data: Buffer) -> None:
        """Add a copy of ``data``, which must be small, to the bytes that are sent next."""

    async def send(self, data: Buffer, *, before_wait: Callable[[], None] | None = None) -> None:
        """Send all of ``data``, now or together with the following data.

        With ``before_wait`` the data is borrowed: the unsent rest is copied before the first wait, then it is called.
        """

    async def send_file(self, descriptor: int, position: int, size_bytes: int) -> None:
        """Send a range of a file without reading it into this process."""


class SocketOutlet(Outlet, Protocol):
    """An outlet that is a plain socket if `is_plain` (a `SocketTransport`)."""

    descriptor: int

    @property
    def is_plain(self) -> bool:
        """Whether bytes that are written to the descriptor reach the client as they are."""

    def flush_now(self, flags: int = 0, /) -> bool:
        """Send gathered bytes as far as possible without waiting; return whether all were sent."""

    async def wait_writable(self) -> None:
        """Wait until bytes are accepted."""


class BrokenPromiseError(Exception):
    """An error for a part that sent more or fewer bytes than the frame's length: the client's stream is corrupt."""


class Sink:
    """A sink for the bytes of one answer that enforces the promised size.

    Too many bytes raise inside the send, before they reach the client; too few raise in `finish`.
    """

    __slots__ = ("_outlet", "_remaining_bytes")

    def __init__(self, outlet: Outlet, promised_bytes: int) -> None:
        self._outlet = outlet
        self._remaining_bytes = promised_bytes

    @property
    def remaining_bytes(self) -> int:
        """The number of promised bytes that have not been sent yet."""
        return self._remaining_bytes

    def write_now(self, data: Buffer) -> None:
        """Send a small piece of ``data``, without a wait."""
        self._take(len(data))
        self._outlet.gather(data)

    async def write(self, data: Buffer) -> None:
        """Send ``data``, which must not change afterwards."""
        self._take(len(data))
        await self._outlet.send(data)

    async def write_borrowed(self, data: Buffer, before_wait: Callable[[], None]) -> None:
        """Send ``data`` from a buffer that other tasks write to while this task waits.

        Before a wait, the unsent rest is copied and ``before_wait`` is called, to release other borrowed buffers.
        """
        self._take(len(data))
        await self._outlet.send(data, before_wait=before_wait)

    async def send_file(self, descriptor: int, position: int, size_bytes: int) -> None:
        """Send ``size_bytes`` of the open file from ``position`` on, by sendfile(2) if the transport supports it."""
        self._take(size_bytes)
        await self._outlet.send_file(descriptor, position, size_bytes)

    @property
    def socket(self) -> SocketOutlet | None:
        """The socket to which bytes may be written directly, which `wrote` must count; None if there is none.

        Gathered bytes must be flushed first.
        """
        return cast(SocketOutlet, self._outlet) if getattr(self._outlet, "is_plain", False) else None

    def wrote(self, size_bytes: int) -> None:
        """Count bytes that were written to `socket`. Raises BrokenPromiseError if more were than promised."""
        self._take(size_bytes)

    def finish(self) -> None:
        """Check that all promised bytes have been sent.

        Raises BrokenPromiseError if bytes are missing.
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
        """The exact number of bytes that `send_to` sends."""

    async def send_to(self, sink: Sink) -> None:
        """Send the bytes."""


class BulkPart(ABC):
    """A part that the threads of `bulk_lane` can send, as one of the `BulkRows`."""

    __slots__ = ()

    @property
    @abstractmethod
    def size(self) -> int:
        """The exact number of bytes that are sent."""

    @abstractmethod
    async def send_to(self, sink: Sink) -> None:
        """Send the bytes in the connection's own task."""

    @abstractmethod
    def add_to(self, rows: BulkRows) -> bool:
        """Add the part as one row; return False, with nothing added, if only `send_to` can send this one."""

    @abstractmethod
    async def send_rest(self, sink: Sink, stored_at: int, *, has_failed: bool) -> None:
        """Send the rest of the bytes: those of the batches from ``stored_at`` on, or padding if a batch has failed."""

    @abstractmethod
    def end(self, counted: tuple[int, int, int]) -> None:
        """Release what the part holds; ``counted`` is what its row has counted (`BulkRows.counted`)."""


class Encoded:
    """A part of bytes that are already in memory."""

    __slots__ = ("_data",)

    def __init__(self, data: Buffer) -> None:
        self._data = data

    @property
    def size(self) -> int:
        return len(self._data)

    async def send_to(self, sink: Sink) -> None:
        await sink.write(self._data)


class FileSlice(BulkPart):
    """A part of a segment, sent from the page cache to the socket (zero copy)."""

    __slots__ = ("_slice",)

    def __init__(self, log_slice: LogSlice) -> None:
        self._slice = log_slice

    @property
    def size(self) -> int:
        return self._slice.size_bytes

    async def send_to(self, sink: Sink) -> None:
        with self._slice as held:
            await sink.send_file(held.descriptor, held.position, held.size_bytes)

    def add_to(self, rows: BulkRows) -> bool:
        """Add the range as a row."""
        rows.add_file(self._slice.descriptor, self._slice.position, self._slice.size_bytes)
        return True

    async def send_rest(self, sink: Sink, stored_at: int, *, has_failed: bool) -> None:
        """Raise NotImplementedError: nothing of a file needs a task."""
        raise NotImplementedError

    def end(self, counted: tuple[int, int, int]) -> None:
        """Release the file."""
        self._slice.release()

    def send_now(self, sink: Sink) -> None:
        """Copy the bytes, of a small part. Raises EOFError if the file is shorter."""
        with self._slice as held:
            data = os.pread(held.descriptor, held.size_bytes, held.position)
            end = held.position + len(data)
            if len(data) < held.size_bytes:
                raise EOFError(f"a segment ends at {end}, expected {held.position + held.size_bytes}")
            sink.write_now(data)


Answer: TypeAlias = Sequence[Buffer | Part]
"""One response without its length prefix, in the order of the wire."""


def total_size(answer: Answer) -> int:
    """Return the sum of the parts' sizes in bytes."""
    return sum(len(part) if isinstance(part, BUFFERS) else part.size for part in answer)
