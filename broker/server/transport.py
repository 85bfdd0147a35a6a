"""The transport of a client's socket: the system call first, and trio only when it would block.

Waiting through trio costs several microseconds, a system call on a ready socket less than one; most calls on a busy
connection find the socket ready.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable

import trio

from .parts import Buffer

WOULD_BLOCK = -1
"""The result of `SocketTransport.receive_now` if no bytes have arrived."""
TURN_S = 0.0005
"""How long a large answer may be sent without a wait before other tasks get their turn."""
COPIED_BYTES = 8 * 1024
"""Largest range of a file for which a copy costs less than a separate system call."""
GATHERED_BYTES = 64 * 1024
"""Approximate limit of the answers that are gathered in memory to be sent with one call."""


class SocketTransport:
    """A transport of bytes over one connected, non-blocking socket.

    Small pieces are gathered and sent together; `send_file` sends the gathered bytes before the file's bytes in the
    same segments (MSG_MORE). Raises OSError when the client has disconnected.
    """

    __slots__ = ("_gathered", "_socket", "_turn_began", "descriptor")

    def __init__(self, client_socket: socket.socket) -> None:
        client_socket.setblocking(False)
        self._socket = client_socket
        self.descriptor = client_socket.fileno()
        self._gathered = bytearray()
        self._turn_began = time.perf_counter()

    def receive_now(self, space: memoryview) -> int:
        """Read available bytes into ``space``; return their number, 0 at the end of the stream, or `WOULD_BLOCK`."""
        try:
            return self._socket.recv_into(space)
        except BlockingIOError:
            return WOULD_BLOCK

    def gather(self, data: Buffer) -> bool:
        """Add ``data`` to the next flush; return whether a flush is due."""
        self._gathered += data
        return len(self._gathered) > GATHERED_BYTES

    def flush_now(self, flags: int = 0) -> bool:
        """Send gathered bytes as far as possible without waiting; return whether all were sent."""
        gathered = self._gathered
        if not gathered:
            return True
        try:
            sent = self._socket.send(gathered, flags)
        except BlockingIOError:
            return False
        if sent < len(gathered):
            del gathered[:sent]
            return False
        self._gathered = bytearray()
        return True

    async def flush(self) -> None:
        """Send all gathered bytes."""
        while not self.flush_now():
            await self._wait_writable()

    async def send(self, data: Buffer, *, before_wait: Callable[[], None] | None = None) -> None:
        """Gather ``data`` if it is small, else send it after the gathered bytes; see `parts.Outlet`."""
        if len(data) + len(self._gathered) <= GATHERED_BYTES:
            self._gathered += data
            return
        # Borrowed data must not stay borrowed while the gathered bytes wait for the client.
        if before_wait is not None and not self.flush_now(socket.MSG_MORE):
            data = bytes(data)
            before_wait()
            before_wait = None
        await self._send_gathered_first()
        await self._send_all(memoryview(data), 0, before_wait)

    async def send_file(self, descriptor: int, position: int, size_bytes: int) -> None:
        """Send a range of an open file by sendfile(2), or a small range with the gathered bytes.

        Raises EOFError if the file is shorter.
        """
        if size_bytes <= COPIED_BYTES and size_bytes + len(self._gathered) <= GATHERED_BYTES:
            data = os.pread(descriptor, size_bytes, position)
            if len(data) < size_bytes:
                raise EOFError(f"a segment ends at {position + len(data)}, expected {position + size_bytes}")
            self._gathered += data
            return
        await self._send_gathered_first()
        self._turn_began = time.perf_counter()
        end = position + size_bytes
        while position < end:
            try:
                sent = os.sendfile(self.descriptor, descriptor, position, end - position)
            except BlockingIOError:
                await self._wait_writable()
                continue
            if sent == 0:
                raise EOFError(f"a segment ends at {position}, expected {end}")
            position += sent
            await self._take_turns()

    def close(self) -> None:
        """Close the socket; a task that waits for it gets trio.ClosedResourceError."""
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()

    async def _send_gathered_first(self) -> None:
        """Send the gathered bytes, and let the kernel wait for more bytes to fill the segment."""
        if self._gathered:
            data, self._gathered = self._gathered, bytearray()
            await self._send_all(memoryview(data), socket.MSG_MORE, None)

    async def _send_all(self, data: memoryview, flags: int, before_wait: Callable[[], None] | None) -> None:
        self._turn_began = time.perf_counter()
        while data:
            try:
                data = data[self._socket.send(data, flags) :]
            except BlockingIOError:
                if before_wait is not None:
                    data = memoryview(bytes(data))
                    before_wait()
                    before_wait = None
                await self._wait_writable()

    async def _wait_writable(self) -> None:
        await trio.lowlevel.wait_writable(self.descriptor)
        self._turn_began = time.perf_counter()

    async def _take_turns(self) -> None:
        if time.perf_counter() - self._turn_began > TURN_S:
            await trio.lowlevel.checkpoint()
            self._turn_began = time.perf_counter()
