"""The transport of a client of an SSL or SASL_SSL listener, and of a gateway's connection to such a listener.

OpenSSL reads and writes the socket itself, so bytes are copied only by the encryption. A file's bytes are read into one
buffer that all connections share, and are encrypted from there before any other task runs.
"""

from __future__ import annotations

import os
import socket
import ssl
import time

import trio

from .parts import Buffer
from .transport import COPIED_BYTES, GATHERED_BYTES, SocketTransport

FILE_CHUNK_BYTES = 128 * 1024

_shared_chunk = memoryview(bytearray(FILE_CHUNK_BYTES))


class TlsHandshakeError(Exception):
    """An error for a TLS handshake that was not completed; its text is OpenSSL's reason."""


class TlsDisconnectedError(TlsHandshakeError):
    """An error for a TLS handshake during which the other side has disconnected."""


class TlsSocket:
    """A TLS socket with the methods of a plain one that `SocketTransport` uses, and their exceptions."""

    __slots__ = ("_tls", "has_ended")

    def __init__(self, tls: ssl.SSLSocket) -> None:
        self._tls = tls
        self.has_ended = False
        """Whether the other side has ended its stream, which it may do without closing the socket."""

    async def handshake(self) -> None:
        """Complete the TLS handshake. Raises TlsHandshakeError, TlsDisconnectedError."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await trio.lowlevel.wait_readable(self._tls)
            except ssl.SSLWantWriteError:
                await trio.lowlevel.wait_writable(self._tls)
            except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError, ConnectionError) as error:
                raise TlsDisconnectedError(str(error)) from None
            except ssl.SSLError as error:
                raise TlsHandshakeError(getattr(error, "verify_message", "") or error.reason or str(error)) from error
            except (OSError, ValueError) as error:
                raise TlsHandshakeError(getattr(error, "strerror", None) or str(error)) from None
            else:
                return

    def send(self, data: Buffer, flags: int = 0) -> int:
        """Encrypt and send as much as possible; return the number of bytes. Raises BlockingIOError, OSError.

        After a BlockingIOError the next call must begin with the same bytes: OpenSSL has encrypted them already.
        """
        rest = memoryview(data)
        sent = 0
        while sent < len(data):
            try:
                sent += self._tls.send(rest[sent:])
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                if not sent:
                    raise BlockingIOError from None
                break
        return sent

    def recv_into(self, space: memoryview) -> int:
        """Read and decrypt all available bytes, as far as they fit; return their number, 0 at the end of the stream.

        One call of OpenSSL returns one record at most, and the bytes of the next one may have been read from the
        socket already: the kernel would not report them as new input. Raises BlockingIOError, OSError.
        """
        total = 0
        while total < len(space) and not self.has_ended:
            try:
                count = self._tls.recv_into(space[total:])
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                if not total:
                    raise BlockingIOError from None
                break
            self.has_ended = not count
            total += count
        return total

    def recv(self, size_bytes: int, flags: int = 0) -> bytes:
        """Read and decrypt up to ``size_bytes``, as `recv_into` does; the bytes are taken, whatever the flags."""
        space = bytearray(size_bytes)
        return bytes(space[: self.recv_into(memoryview(space))])

    def setblocking(self, flag: bool) -> None:
        """Set whether the socket's calls wait."""
        self._tls.setblocking(flag)

    def fileno(self) -> int:
        """Return the descriptor, -1 once the socket is closed."""
        return self._tls.fileno()

    def close(self) -> None:
        """Tell the client the end of the stream if the socket accepts it at once, and close the socket."""
        try:
            self._tls.unwrap()
        except (OSError, ValueError):
            pass
        finally:
            self._tls.close()


class TlsTransport(SocketTransport):
    """A transport of bytes over TLS. Call `handshake` first; the rest is as in `SocketTransport`."""

    __slots__ = ("_encrypted", "_tls")

    def __init__(self, connected: socket.socket, context: ssl.SSLContext, server_hostname: str | None = None) -> None:
        """Take the connected socket: the server's side, or the client's side if the server's host is named.

        Raises OSError if the other side has disconnected.
        """
        connected.setblocking(False)
        self._tls = context.wrap_socket(
            connected,
            server_side=server_hostname is None,
            do_handshake_on_connect=False,
            server_hostname=server_hostname,
        )
        self._encrypted = TlsSocket(self._tls)
        super().__init__(self._encrypted)

    async def handshake(self) -> None:
        """Complete the TLS handshake. Raises TlsHandshakeError, TlsDisconnectedError."""
        await self._encrypted.handshake()

    def peer_certificate(self) -> bytes | None:
        """Return the client's certificate in DER format, None if it has shown none."""
        return self._tls.getpeercert(binary_form=True)

    def receive_now(self, space: memoryview) -> int:
        """Read all available bytes, as far as they fit; see `SocketTransport.receive_now`."""
        count = super().receive_now(space)
        self.has_ended = self._encrypted.has_ended
        return count

    async def send_file(self, descriptor: int, position: int, size_bytes: int) -> None:
        """Encrypt and send a range of an open file. Raises EOFError if the file is shorter."""
        if size_bytes <= COPIED_BYTES and size_bytes + len(self._gathered) <= GATHERED_BYTES:
            self._gather_from(descriptor, position, size_bytes)
            return
        await self._send_gathered_first()
        self._turn_began = time.perf_counter()
        end = position + size_bytes
        while position < end:
            chunk = _shared_chunk[: min(end - position, FILE_CHUNK_BYTES)]
            count = os.preadv(descriptor, [chunk], position)
            if count == 0:
                raise EOFError(f"a segment ends at {position}, expected {end}")
            try:
                position += self._socket.send(chunk[:count])
            except BlockingIOError:
                # The chunk is read again after the wait: meanwhile it belongs to the other connections.
                await self.wait_writable()
                continue
            await self._take_turns()
