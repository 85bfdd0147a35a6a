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

from .byte_transport_cy import GATHERED_BYTES, ByteSocket, ByteTransport
from .parts import Buffer
from .receive_buffer_cy import WOULD_BLOCK

__all__ = ["COPIED_BYTES", "GATHERED_BYTES", "WOULD_BLOCK", "ByteSocket", "SocketTransport"]

TURN_S = 0.0005
"""Longest time in seconds that a large answer is sent without a wait, before other tasks get their turn."""
MOST_AWAITED_BYTES = 256 * 1024
"""Most bytes for which `SocketTransport.wake_at` waits."""
COPIED_BYTES = 8 * 1024
"""Largest range of a file for which a copy costs less than a separate system call."""


class SocketTransport(ByteTransport):
    """A transport of bytes over one connected, non-blocking socket.

    Small pieces are gathered and sent together; `send_file` sends the gathered bytes before the file's bytes in the
    same segments (MSG_MORE). Raises OSError when the client has disconnected.
    """

    __slots__ = ("_awaited_bytes", "_send_buffer_bytes", "_turn_began")

    def __init__(self, client_socket: ByteSocket) -> None:
        super().__init__(client_socket)
        self._awaited_bytes = 1
        self._send_buffer_bytes = 0
        """The size that `enlarge_send_buffer` has set; 0 for that of the listening socket."""
        self._turn_began = time.perf_counter()

    def wake_at(self, size_bytes: int) -> None:
        """Let the socket become readable only with ``size_bytes`` of input, which must be on their way, or at its end.

        The kernel enlarges the socket's receive buffer for them (SO_RCVLOWAT, tcp(7)).
        """
        size_bytes = min(size_bytes, MOST_AWAITED_BYTES)
        if size_bytes != self._awaited_bytes and isinstance(self._socket, socket.socket):
            self._awaited_bytes = size_bytes
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size_bytes)

    def enlarge_send_buffer(self, size_bytes: int) -> None:
        """Set the size of a plain socket's send buffer, unless it was set to as much before."""
        if size_bytes > self._send_buffer_bytes and isinstance(self._socket, socket.socket):
            self._send_buffer_bytes = size_bytes
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size_bytes)

    async def flush(self) -> None:
        """Send all gathered bytes."""
        while not self.flush_now():
            await self.wait_writable()

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
            self._gather_from(descriptor, position, size_bytes)
            return
        await self._send_gathered_first()
        self._turn_began = time.perf_counter()
        end = position + size_bytes
        while position < end:
            try:
                sent = os.sendfile(self.descriptor, descriptor, position, end - position)
            except BlockingIOError:
                await self.wait_writable()
                continue
            if sent == 0:
                raise EOFError(f"a segment ends at {position}, expected {end}")
            position += sent
            await self._take_turns()

    def close(self) -> None:
        """Close the socket; a task that waits for it gets trio.ClosedResourceError."""
        self.plain_descriptor = -1
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()

    def _gather_from(self, descriptor: int, position: int, size_bytes: int) -> None:
        data = os.pread(descriptor, size_bytes, position)
        if len(data) < size_bytes:
            raise EOFError(f"a segment ends at {position + len(data)}, expected {position + size_bytes}")
        self._gathered += data

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
                await self.wait_writable()

    async def wait_writable(self) -> None:
        """Wait until the socket accepts bytes."""
        await trio.lowlevel.wait_writable(self.descriptor)
        self._turn_began = time.perf_counter()

    async def _take_turns(self) -> None:
        if time.perf_counter() - self._turn_began > TURN_S:
            await trio.lowlevel.checkpoint()
            self._turn_began = time.perf_counter()
