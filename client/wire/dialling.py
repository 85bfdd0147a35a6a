"""The address of one broker, its connection, and the code that opens a connection."""

from __future__ import annotations

import logging
import os
import ssl
from errno import errorcode

import trio

from ...security.tls import certificate_hint
from ..config import ClientConfig
from ..errors import AuthenticationFailedError, ConnectionLostError

logger = logging.getLogger(__name__)

SECONDS_BEFORE_A_WARNING = 1.0
"""The length of an outage before the first warning: a restart of a broker, or a tool with a shorter time limit, logs
none.
"""

SECONDS_BETWEEN_WARNINGS = 30.0


class Outages:
    """The addresses that cannot be reached now, so that the log names each of them once and not at every attempt."""

    def __init__(self) -> None:
        self._warn_at: dict[str, float] = {}

    def failed(self, address: str, failure: Exception, began_at: float) -> None:
        """Report an address that cannot be reached for SECONDS_BEFORE_A_WARNING, then every SECONDS_BETWEEN_WARNINGS.

        `began_at` is the start of the failed attempt, on trio's clock.
        """
        now = trio.current_time()
        for forgotten in [known for known, at in self._warn_at.items() if now - at > SECONDS_BETWEEN_WARNINGS]:
            del self._warn_at[forgotten]
        if now >= self._warn_at.setdefault(address, began_at + SECONDS_BEFORE_A_WARNING):
            self._warn_at[address] = now + SECONDS_BETWEEN_WARNINGS
            logger.warning("%s; trying again", failure)

    def ended(self, address: str) -> None:
        """Note that an address was reached: its next failure starts a new outage."""
        self._warn_at.pop(address, None)


async def open_stream(host: str, port: int, config: ClientConfig) -> trio.abc.Stream:
    """Open a stream to a broker, through TLS if `security.protocol` is SSL or SASL_SSL.

    Raises ConnectionLostError that names the address and the reason, after `socket.connection.setup.timeout.ms` at
    the latest. A cancelled call leaves no socket open.
    """
    stream: trio.abc.Stream | None = None
    try:
        with trio.fail_after(config.socket_connection_setup_timeout_ms / 1000):
            stream = tcp = await trio.open_tcp_stream(host, port)
            _set_socket_options(tcp, config)
            if config.security.uses_tls:
                stream = tls = trio.SSLStream(tcp, config.security.tls_context, server_hostname=host)
                await tls.do_handshake()
    except BaseException as failure:
        if stream is not None:
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(stream)
        if isinstance(failure, trio.BrokenResourceError) and isinstance(failure.__cause__, ssl.SSLError):
            reason = _reason(failure, config) + certificate_hint(failure.__cause__)
            raise AuthenticationFailedError(f"SSL handshake with {host}:{port} failed: {reason}") from failure
        # A broker may advertise an invalid address: IDNA raises ValueError, an invalid port raises OverflowError.
        if isinstance(failure, OSError | trio.BrokenResourceError | trio.TooSlowError | ValueError | OverflowError):
            raise ConnectionLostError(f"cannot connect to {host}:{port}: {_reason(failure, config)}") from failure
        raise
    return stream


def _reason(failure: BaseException, config: ClientConfig) -> str:
    """Return the reason of a failed connection; trio keeps the system's messages in the causes of its own errors."""
    if isinstance(failure, trio.TooSlowError):
        limit_ms = config.socket_connection_setup_timeout_ms
        return f"no answer within socket.connection.setup.timeout.ms ({limit_ms} ms)"
    reasons = dict.fromkeys(_system_words(failure))
    return ", ".join(reasons) or "the broker closed the connection"


def _system_words(failure: BaseException) -> list[str]:
    if isinstance(failure, BaseExceptionGroup):
        return [words for one in failure.exceptions for words in _system_words(one)]
    if isinstance(failure, ssl.SSLError):
        # The numbers of OpenSSL's errors are not those of the system.
        return [getattr(failure, "verify_message", "") or failure.reason or "the TLS connection ended"]
    if failure.__cause__ is not None:
        return _system_words(failure.__cause__)
    if isinstance(failure, OSError) and failure.errno is not None and failure.errno in errorcode:
        # The text of the error repeats the address.
        return [os.strerror(failure.errno)]
    words = getattr(failure, "strerror", None) or str(failure)
    return [words] if words else []


def _set_socket_options(stream: trio.SocketStream, config: ClientConfig) -> None:
    for option, size in (
        (trio.socket.SO_SNDBUF, config.send_buffer_bytes),
        (trio.socket.SO_RCVBUF, config.receive_buffer_bytes),
    ):
        # -1 keeps the system's own size, as in Kafka; so does the default here, which lets Linux tune the size.
        if size > 0 and size not in (ClientConfig.send_buffer_bytes, ClientConfig.receive_buffer_bytes):
            stream.setsockopt(trio.socket.SOL_SOCKET, option, size)
