"""New connections to upstream brokers, through TLS and with the gateway's own SASL login where these are configured.

The keys are those of Kafka's clients behind `gregor.gateway.upstream.`, for example
``gregor.gateway.upstream.security.protocol=SASL_SSL``.
"""

from __future__ import annotations

import socket
from dataclasses import replace

import trio

from ..broker.config import BrokerConfig, ConfigError
from ..broker.config.gateway_keys import UPSTREAM_PREFIX
from ..broker.config.table import SUPPORTED_KEYS
from ..broker.server.tls_transport import TlsDisconnectedError, TlsHandshakeError, TlsTransport
from ..broker.server.transport import WOULD_BLOCK, SocketTransport
from ..client.config import ClientConfig
from ..client.errors import AuthenticationFailedError, ConnectionLostError
from ..client.errors import ConfigError as ClientConfigError
from ..client.shared_properties import properties_for
from ..client.wire.dialling import open_stream
from ..client.wire.login import log_in
from ..security.client_security import PLAINTEXT, ClientSecurity, is_security_key
from ..security.errors import SecuritySettingError
from ..security.tls import certificate_hint

CLIENT_ID = "gregor-gateway"
"""The client id of the gateway's own requests; requests of clients keep theirs."""
READ_BYTES = 64 * 1024


def upstream_client_config(config: BrokerConfig) -> ClientConfig:
    """Return the configuration of the gateway as a client of the upstream cluster. Raises ConfigError."""
    timeout_ms = config.gregor_gateway_upstream_timeout_ms
    properties = {
        name.removeprefix(UPSTREAM_PREFIX): text
        for name, text in config.properties.items()
        if name.startswith(UPSTREAM_PREFIX) and name not in SUPPORTED_KEYS
    }
    try:
        known = properties_for(ClientConfig, properties)
        unused = [name for name in properties if name not in known or not is_security_key(name.replace("_", "."))]
        if unused:
            raise ConfigError(f"{UPSTREAM_PREFIX}{unused[0]} has no effect: {_instead(unused[0])}")
        security = ClientSecurity.from_properties(known)
    except (SecuritySettingError, ClientConfigError) as error:
        raise ConfigError(f"{UPSTREAM_PREFIX}*: {error}") from None
    return ClientConfig(
        client_id=CLIENT_ID,
        request_timeout_ms=timeout_ms,
        socket_connection_setup_timeout_ms=timeout_ms,
        metadata_recovery_strategy="rebootstrap",
        metadata_recovery_rebootstrap_trigger_ms=timeout_ms,
        security=security,
    )


def _instead(name: str) -> str:
    """Return what to set instead of a key of Kafka's clients that a gateway does not use."""
    if name == "bootstrap.servers":
        return "set gregor.gateway.upstream"
    if name in ("request.timeout.ms", "socket.connection.setup.timeout.ms"):
        return f"set {UPSTREAM_PREFIX}timeout.ms"
    return "of the keys of Kafka's clients, a gateway uses those of security only"


async def dial(host: str, port: int, config: ClientConfig, *, logs_in: bool) -> tuple[SocketTransport, float | None]:
    """Return the transport of a new connection, and the length of its SASL session in seconds, None if it has no end.

    Without ``logs_in`` the exchange of a client is passed through later. Raises ConnectionLostError;
    AuthenticationFailedError if the gateway refuses the broker's certificate, or the broker the gateway's login.
    """
    stream = await open_stream(host, port, replace(config, security=PLAINTEXT))
    assert isinstance(stream, trio.SocketStream)
    connected = socket.socket(fileno=stream.socket.detach())
    security = config.security
    transport: SocketTransport | None = None
    try:
        with trio.fail_after(config.socket_connection_setup_timeout_ms / 1000):
            if security.uses_tls:
                transport = tls = TlsTransport(connected, security.tls_context, host)
                await tls.handshake()
            else:
                transport = SocketTransport(connected)
            session_s = None
            if security.uses_sasl and logs_in:
                session_s = await log_in(TransportStream(transport), config)
    except BaseException as error:
        connected.close() if transport is None else transport.close()
        if isinstance(error, TlsHandshakeError) and not isinstance(error, TlsDisconnectedError):
            reason = f"{error}{certificate_hint(error.__cause__)}"
            raise AuthenticationFailedError(f"SSL handshake with {host}:{port} failed: {reason}") from error
        if isinstance(error, TlsDisconnectedError | OSError | trio.TooSlowError):
            raise ConnectionLostError(f"cannot connect to {host}:{port}: {error or type(error).__name__}") from error
        raise
    return transport, session_s


class TransportStream(trio.abc.Stream):
    """A trio stream over a transport, for the login."""

    def __init__(self, transport: SocketTransport) -> None:
        self._transport = transport

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._transport.send(data)
        await self._transport.flush()

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        space = memoryview(bytearray(max_bytes or READ_BYTES))
        while (count := self._transport.receive_now(space)) == WOULD_BLOCK:
            await trio.lowlevel.wait_readable(self._transport.descriptor)
        return bytes(space[:count])

    async def aclose(self) -> None:
        self._transport.close()
        await trio.lowlevel.checkpoint()
