"""The transport of a client's socket: the system call first, and trio only when it would block.

Waiting through trio costs several microseconds, a system call on a ready socket less than one; most calls on a busy
connection find the socket ready.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from typing import Protocol

import trio

from .parts import Buffer

WOULD_BLOCK = -1
"""The result of `SocketTransport.receive_now` if no bytes have arrived."""
TURN_S = 0.0005
"""Longest time in seconds that a large answer is sent without a wait, before other tasks get their turn."""
MOST_AWAITED_BYTES = 256 * 1024
"""Most bytes for which `SocketTransport.wake_at` waits."""
COPIED_BYTES = 8 * 1024
"""Largest range of a file for which a copy costs less than a separate system call."""
GATHERED_BYTES = 64 * 1024
"""Approximate limit of the answers that are gathered in memory to be sent with one call."""


class ByteSocket(Protocol):
    """A non-blocking socket, plain or with TLS: its methods raise BlockingIOError where they would wait."""

    def send(self, data: Buffer, flags: int = ..., /) -> int: ...
    def recv_into(self, space: memoryview, /) -> int: ...
    def setblocking(self, flag: bool, /) -> None: ...
    def fileno(self) -> int: ...
    def close(self) -> None: ...


class SocketTransport:
    """A transport of bytes over one connected, non-blocking socket.

    Small pieces are gathered and sent together; `send_file` sends the gathered bytes before the file's bytes in the
    same segments (MSG_MORE). Raises OSError when the client has disconnected.
    """

    __slots__ = ("_awaited_bytes", "_gathered", "_socket", "_turn_began", "descriptor", "has_ended")

    def __init__(self, client_socket: ByteSocket) -> None:
        client_socket.setblocking(False)
        self._socket = client_socket
        self.descriptor = client_socket.fileno()
        self.has_ended = False
        """Whether the stream has ended although the socket is open: only TLS can say so."""
        self._awaited_bytes = 1
        self._gathered = bytearray()
        self._turn_began = time.perf_counter()

    def receive_now(self, space: memoryview) -> int:
        """Read available bytes into ``space``; return their number, 0 at the end of the stream, or `WOULD_BLOCK`."""
        try:
            return self._socket.recv_into(space)
        except BlockingIOError:
            return WOULD_BLOCK

    def wake_at(self, size_bytes: int) -> None:
        """Let the socket become readable only with ``size_bytes`` of input, which must be on their way, or at its end.

        The kernel enlarges the socket's receive buffer for them (SO_RCVLOWAT, tcp(7)).
        """
        size_bytes = min(size_bytes, MOST_AWAITED_BYTES)
        if size_bytes != self._awaited_bytes and isinstance(self._socket, socket.socket):
            self._awaited_bytes = size_bytes
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size_bytes)

    def gather(self, data: Buffer) -> None:
        """Add ``data`` to the next flush."""
        self._gathered += data

    @property
    def is_plain(self) -> bool:
        """Whether bytes that are written to the descriptor reach the client as they are."""
        return type(self._socket) is socket.socket

    def gathered_with(self, data: bytes) -> bytes:
        """Return the gathered bytes, followed by ``data``."""
        return bytes(self._gathered) + data

    def forget_gathered(self) -> None:
        """Drop the gathered bytes, which the caller sends."""
        self._gathered = bytearray()

    @property
    def is_full(self) -> bool:
        """Whether so many bytes are gathered that a flush is due."""
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
