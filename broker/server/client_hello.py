"""The log line about a client that begins with TLS on a listener without TLS."""

from __future__ import annotations

from .client_connection import ClientConnection
from .receive_buffer_cy import LENGTH, InvalidFrameError, ReceiveBuffer

HANDSHAKE_OF_TLS = 0x1603
"""The first bytes of a ClientHello: a record of type handshake (22), major version 3 (RFC 8446, 5.1)."""
LATEST_MINOR_VERSION = 4


def is_client_hello(length: int) -> bool:
    """Return whether the four bytes that were read as the ``length`` of a frame are those of a TLS ClientHello."""
    return length >> 16 == HANDSHAKE_OF_TLS and length >> 8 & 0xFF <= LATEST_MINOR_VERSION


def reason_to_close(error: Exception, buffer: ReceiveBuffer, client: ClientConnection) -> str:
    """Return the text of an error; for the refused frame of a client that speaks TLS, what to check.

    Kafka logs the invalid size of the frame only (InvalidReceiveException).
    """
    if not isinstance(error, InvalidFrameError):
        return str(error)
    (length,) = LENGTH.unpack_from(buffer.view, buffer.consumed)
    if not is_client_hello(length) or client.security_protocol.endswith("SSL"):
        return str(error)
    return (
        f"the client speaks TLS, but the security protocol of listener {client.listener_name} is "
        f"{client.security_protocol}. Check listeners and listener.security.protocol.map, or security.protocol of the "
        "client"
    )
