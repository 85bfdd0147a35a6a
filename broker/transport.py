"""A client's socket: the system call first, and trio only when it would block.

Waiting through trio costs several microseconds, a system call on a ready socket less than one; most calls on a busy
connection find the socket ready.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable

import trio

from .parts import Buffer

HANGUP_POLL_S = 0.2
"""How often a client's hang-up is looked for while requests that it has pipelined hide it from the readiness event."""
TURN_S = 0.0005
"""How long one connection may work without a wait before others get their turn."""
COALESCED_BYTES = 64 * 1024
"""Answers that wait in memory to be sent with one call are at most about this much."""


class SocketTransport:
    """Bytes in and out of one connected, non-blocking socket.

    `send` gathers small pieces, `flush` sends them; `send_file` puts what was gathered in front of the file's bytes in
    the same segments (MSG_MORE). Raises OSError when the client is gone.
    """

    __slots__ = ("_descriptor", "_gathered", "_socket", "_turn_began")

    def __init__(self, client_socket: socket.socket) -> None:
        client_socket.setblocking(False)
        self._socket = client_socket
        self._descriptor = client_socket.fileno()
        self._gathered = bytearray()
        self._turn_began = time.perf_counter()

    async def receive_into(self, space: memoryview) -> int:
        """Wait for bytes and put them into ``space``; returns their number, 0 at the end of the stream."""
        while True:
            try:
                return self._socket.recv_into(space)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._descriptor)
                self._turn_began = time.perf_counter()

    async def take_turns(self) -> None:
        """Let other tasks run if this one has not waited for a while."""
        if time.perf_counter() - self._turn_began > TURN_S:
            await trio.lowlevel.checkpoint()
            self._turn_began = time.perf_counter()

    async def send(self, data: Buffer, *, before_wait: Callable[[], None] | None = None) -> None:
        """Gather ``data`` if it is small, else send it after what has been gathered; see `parts.Outlet`."""
        if len(data) + len(self._gathered) <= COALESCED_BYTES:
            self._gathered += data
            return
        await self._send_gathered(socket.MSG_MORE)
        await self._send_all(memoryview(data), 0, before_wait)

    async def flush(self) -> None:
        """Send what has been gathered."""
        await self._send_gathered(0)

    async def send_file(self, descriptor: int, position: int, size_bytes: int) -> None:
        """Send a stretch of an open file by sendfile(2). Raises EOFError if the file is shorter."""
        await self._send_gathered(socket.MSG_MORE)
        end = position + size_bytes
        while position < end:
            try:
                sent = os.sendfile(self._descriptor, descriptor, position, end - position)
            except BlockingIOError:
                await self._wait_writable()
                continue
            if sent == 0:
                raise EOFError(f"a segment ends at {position}, expected {end}")
            position += sent
            await self.take_turns()

    async def wait_for_hangup(self) -> None:
        """Return when the client has closed its side. Bytes that it sends meanwhile stay in the socket."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLRDHUP)
        while not poll.poll(0):
            if _has_input(self._descriptor):
                await trio.sleep(HANGUP_POLL_S)
            else:
                await trio.lowlevel.wait_readable(self._descriptor)

    def close(self) -> None:
        """Close the socket; a task that waits for it gets trio.ClosedResourceError."""
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()

    async def _send_gathered(self, flags: int) -> None:
        if self._gathered:
            data, self._gathered = self._gathered, bytearray()
            await self._send_all(memoryview(data), flags, None)

    async def _send_all(self, data: memoryview, flags: int, before_wait: Callable[[], None] | None) -> None:
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
        await trio.lowlevel.wait_writable(self._descriptor)
        self._turn_began = time.perf_counter()


def _has_input(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
