"""The way to one broker: its address, the connection to it, and how a connection is made."""

from __future__ import annotations

import logging
import os
import ssl
from errno import errorcode

import trio

from ..config import ClientConfig
from ..errors import ConnectionLostError

logger = logging.getLogger(__name__)

SECONDS_BEFORE_A_WARNING = 1.0
"""A broker that restarts is no reason for one yet; nor is a tool that gives up earlier, and says so itself."""

SECONDS_BETWEEN_WARNINGS = 30.0


class Outages:
    """The addresses that cannot be reached now, so that a log tells of each once and not at every attempt."""

    def __init__(self) -> None:
        self._warn_at: dict[str, float] = {}

    def failed(self, address: str, failure: Exception, began_at: float) -> None:
        """Warn of an address that cannot be reached for SECONDS_BEFORE_A_WARNING, then every SECONDS_BETWEEN_WARNINGS.

        `began_at` is when the attempt that failed began, on trio's clock.
        """
        now = trio.current_time()
        for forgotten in [known for known, at in self._warn_at.items() if now - at > SECONDS_BETWEEN_WARNINGS]:
            del self._warn_at[forgotten]
        if now >= self._warn_at.setdefault(address, began_at + SECONDS_BEFORE_A_WARNING):
            self._warn_at[address] = now + SECONDS_BETWEEN_WARNINGS
            logger.warning("%s; trying again", failure)

    def ended(self, address: str) -> None:
        """Note that an address was reached: its next failure is a new one."""
        self._warn_at.pop(address, None)


async def open_stream(host: str, port: int, config: ClientConfig) -> trio.abc.Stream:
    """Open a stream to a broker, through TLS if `security.protocol` is SSL.

    Raises ConnectionLostError that names the address and the reason, after `socket.connection.setup.timeout.ms` at
    the latest. Whoever is cancelled leaves no socket behind.
    """
    stream: trio.abc.Stream | None = None
    try:
        with trio.fail_after(config.socket_connection_setup_timeout_ms / 1000):
            stream = tcp = await trio.open_tcp_stream(host, port)
            _set_socket_options(tcp, config)
            if config.security_protocol == "SSL":
                context = config.ssl_context or ssl.create_default_context()
                stream = tls = trio.SSLStream(tcp, context, server_hostname=host)
                await tls.do_handshake()
    except BaseException as failure:
        if stream is not None:
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(stream)
        # What a broker advertises may be no address at all: a ValueError from IDNA, an OverflowError from the port.
        if isinstance(failure, OSError | trio.BrokenResourceError | trio.TooSlowError | ValueError | OverflowError):
            raise ConnectionLostError(f"cannot connect to {host}:{port}: {_reason(failure, config)}") from failure
        raise
    return stream


def _reason(failure: BaseException, config: ClientConfig) -> str:
    """Say why a connection was not made; trio keeps the system's words in the causes of its own errors."""
    if isinstance(failure, trio.TooSlowError):
        limit_ms = config.socket_connection_setup_timeout_ms
        return f"no answer within socket.connection.setup.timeout.ms ({limit_ms} ms)"
    reasons = dict.fromkeys(_system_words(failure))
    return ", ".join(reasons) or "the broker hung up"


def _system_words(failure: BaseException) -> list[str]:
    if isinstance(failure, BaseExceptionGroup):
        return [words for one in failure.exceptions for words in _system_words(one)]
    if failure.__cause__ is not None:
        return _system_words(failure.__cause__)
    if isinstance(failure, OSError) and failure.errno is not None and failure.errno in errorcode:
        # Its text repeats the address.
        return [os.strerror(failure.errno)]
    words = getattr(failure, "strerror", None) or str(failure)
    return [words] if words else []


def _set_socket_options(stream: trio.SocketStream, config: ClientConfig) -> None:
    for option, size in (
        (trio.socket.SO_SNDBUF, config.send_buffer_bytes),
        (trio.socket.SO_RCVBUF, config.receive_buffer_bytes),
    ):
        # -1 leaves the system's own size, as in Kafka; so does the default here, which lets Linux tune it.
        if size > 0 and size not in (ClientConfig.send_buffer_bytes, ClientConfig.receive_buffer_bytes):
            stream.setsockopt(trio.socket.SOL_SOCKET, option, size)
