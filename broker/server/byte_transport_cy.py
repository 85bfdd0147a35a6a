"""The part of a transport that never waits: it receives, gathers and sends.

A plain socket is read and written by system calls without Python's socket object between, which takes as long as the
calls themselves. This is ordinary Python that is also compiled: ``byte_transport_cy.pxd`` has the C types.
"""

from __future__ import annotations

import os
import socket
from errno import EAGAIN
from typing import Protocol

try:
    import cython
except ImportError:
    from ...protocol.records import cython_stand_in as cython

from .parts import Buffer
from .receive_buffer_cy import WOULD_BLOCK

if not cython.compiled:
    from .socket_calls import send_gathered

GATHERED_BYTES = 64 * 1024
"""Approximate limit of the answers that are gathered in memory to be sent with one call."""
_EAGAIN = EAGAIN


class ByteSocket(Protocol):
    """A non-blocking socket, plain or with TLS: its methods raise BlockingIOError where they would wait."""

    def send(self, data: Buffer, flags: int = ..., /) -> int: ...
    def recv_into(self, space: memoryview, /) -> int: ...
    def setblocking(self, flag: bool, /) -> None: ...
    def fileno(self) -> int: ...
    def close(self) -> None: ...


class ByteTransport:
    """A transport of bytes without its waits; `SocketTransport` adds them.

    Small pieces are gathered and sent together. Raises OSError when the client has disconnected.
    """

    __slots__ = ("_gathered", "_socket", "descriptor", "has_ended", "is_plain", "plain_descriptor")

    def __init__(self, client_socket: ByteSocket) -> None:
        """Take a connected socket, which becomes non-blocking."""
        client_socket.setblocking(False)
        self._socket = client_socket
        self.descriptor = client_socket.fileno()
        self.is_plain = type(client_socket) is socket.socket
        """Whether bytes that are written to the descriptor reach the client as they are."""
        self.plain_descriptor = self.descriptor if self.is_plain else -1
        """The descriptor of a plain socket that is open, else -1: the kernel gives that of a closed one to others."""
        self.has_ended = False
        """Whether the stream has ended although the socket is open: only TLS can say so."""
        self._gathered = bytearray()

    def receive_now(self, space: memoryview) -> int:
        """Read available bytes into ``space``; return their number, 0 at the end of the stream, or `WOULD_BLOCK`."""
        try:
            return self._socket.recv_into(space)
        except BlockingIOError:
            return WOULD_BLOCK

    def gather(self, data: Buffer) -> None:
        """Add ``data`` to the next flush."""
        self._gathered += data

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
        size_bytes = len(gathered)
        if not size_bytes:
            return True
        if self.plain_descriptor >= 0:
            sent = send_gathered(self.plain_descriptor, gathered, flags)
            if sent < 0:
                if sent != -_EAGAIN:
                    raise OSError(-sent, os.strerror(-sent))
                return False
        else:
            try:
                sent = self._socket.send(gathered, flags)
            except BlockingIOError:
                return False
        if sent < size_bytes:
            del gathered[:sent]
            return False
        self._gathered = bytearray()
        return True
