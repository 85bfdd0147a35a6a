"""TLS and the SASL login of a connection to another node."""

from __future__ import annotations

import socket
import ssl
from functools import partial

import trio

from ...protocol.errors import BrokerError, DecodeError
from ...security.client_login import ClientLogin
from ...security.client_security import ClientSecurity
from ...security.errors import SaslAuthenticationError
from ..server.tls_transport import TlsHandshakeError, TlsSocket
from .peer_socket import PeerSocket

READ_BYTES = 16 * 1024


async def secured(
    connected: PeerSocket, host: str, client_id: str, security: ClientSecurity
) -> tuple[PeerSocket, float | None]:
    """Return the socket after the TLS handshake and the login that ``security`` demands, and the session's length.

    The length is in seconds; it is None if the session does not end (KIP-368).

    Raises OSError, SaslAuthenticationError with the reason.
    """
    if security.uses_tls:
        assert isinstance(connected, socket.socket)
        tls = security.tls_context.wrap_socket(connected, server_hostname=host, do_handshake_on_connect=False)
        connected = encrypted = TlsSocket(tls)
        try:
            await encrypted.handshake()
        except TlsHandshakeError as error:
            encrypted.close()
            raise ssl.SSLError(f"SSL handshake failed: {error}") from None
    if security.uses_sasl:
        try:
            session_s = await _log_in(connected, client_id, security)
        except BaseException as error:
            connected.close()
            if isinstance(error, BrokerError | DecodeError):
                raise SaslAuthenticationError(str(error)) from None
            raise
        return connected, session_s
    return connected, None


async def new_login(client_id: str, security: ClientSecurity) -> ClientLogin:
    """Return a login, for which a token may have to be fetched. Raises SaslAuthenticationError."""
    if security.login_may_block:
        return await trio.to_thread.run_sync(security.client_login, client_id, abandon_on_cancel=True)
    return security.client_login(client_id)


async def _log_in(connected: PeerSocket, client_id: str, security: ClientSecurity) -> float | None:
    """Log in; return the length of the session in seconds, None if it does not end."""
    login = await new_login(client_id, security)
    return await login.run(partial(_write, connected), partial(_read, connected), trio.to_thread.run_sync)


async def _write(connected: PeerSocket, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[connected.send(rest) :]
        except BlockingIOError:
            await trio.lowlevel.wait_writable(connected)


async def _read(connected: PeerSocket, received: bytearray, size: int) -> None:
    """Extend ``received`` to at least this size."""
    space = bytearray(READ_BYTES)
    while len(received) < size:
        try:
            count = connected.recv_into(memoryview(space))
        except BlockingIOError:
            await trio.lowlevel.wait_readable(connected)
            continue
        if not count:
            raise ConnectionResetError("the other side closed the connection during the login")
        received += space[:count]
