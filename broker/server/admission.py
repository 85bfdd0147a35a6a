"""The admission of a client: the TLS handshake and the SASL exchange, before its connection serves any request.

A client that is not authenticated has a limited time, and a small limit for its requests' size. A failure is answered
with a delay (``connection.failed.authentication.delay.ms``), so that guessing takes long.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Protocol

import trio

from ...protocol.errors import DecodeError
from .client_connection import ClientConnection, ClientGoneError
from .client_hello import reason_to_close
from .parts import Answer
from .receive_buffer_cy import InvalidFrameError, ReceiveBuffer
from .tls_transport import TlsDisconnectedError, TlsHandshakeError, TlsTransport
from .transport import WOULD_BLOCK, SocketTransport

logger = logging.getLogger(__name__)

MOST_CHARACTERS = 500
"""Most characters of the reason of a failed login in the log."""

Respond = Callable[[memoryview], Awaitable[Answer | None]]
"""Answers a request that needs no authentication (ApiVersions)."""
Send = Callable[[Answer], Awaitable[None]]


class ClientRefusedError(Exception):
    """An error for a client that is not admitted; ``answer`` is sent before its connection is closed."""

    def __init__(self, reason: str, answer: Answer | None = None) -> None:
        super().__init__(reason)
        self.answer = answer


class Authenticator(Protocol):
    """The server's side of a SASL login (Kafka: SaslServerAuthenticator)."""

    @property
    def is_complete(self) -> bool:
        """Whether the client is authenticated."""

    async def answer(self, frame: memoryview, respond: Respond) -> Answer | None:
        """Answer one frame; an empty answer is none. Raises ClientRefusedError, DecodeError."""


class Input(Protocol):
    """The side of a transport that receives."""

    descriptor: int

    def receive_now(self, space: memoryview) -> int: ...


class ListenerGuard(Protocol):
    """The security of one listener (`authentication.listener_guard.ListenerGuard`)."""

    security_protocol: str

    @property
    def login_frame_limit_bytes(self) -> int:
        """The largest frame of a client that is not authenticated."""

    @property
    def timeout_s(self) -> float:
        """The time in which a client must authenticate."""

    @property
    def failure_delay_s(self) -> float:
        """The delay of the answer to a failed login."""

    def transport(self, client_socket: socket.socket) -> SocketTransport:
        """Return the transport of a new connection. Raises OSError."""

    def identify(self, client: ClientConnection, certificate: bytes | None) -> None:
        """Set the client's principal by its certificate. Raises ClientRefusedError."""

    def authenticator(self, client: ClientConnection) -> Authenticator | None:
        """Return the server's side of a new SASL login, None on a listener without SASL."""


def printable(text: str) -> str:
    """Return a text for one line of the log, without control characters and not too long: it may be a client's."""
    shown = "".join(character if character.isprintable() else "?" for character in text[:MOST_CHARACTERS])
    return shown if len(text) <= MOST_CHARACTERS else f"{shown}..."


class Admission:
    """The admission of one client."""

    def __init__(
        self,
        guard: ListenerGuard,
        client: ClientConnection,
        transport: Input,
        buffer: ReceiveBuffer,
        grown: Callable[[], None],
    ) -> None:
        """Take the parts of the client's connection; ``grown`` is called after each growth of the buffer."""
        self._guard = guard
        self._client = client
        self._transport = transport
        self._buffer = buffer
        self._grown = grown

    async def run(self, respond: Respond, send: Send) -> bool:
        """Return whether the client was admitted; if not, the reason is in the log, and the connection must end.

        Raises OSError, ClientGoneError.
        """
        answer: Answer | None = None
        activity = self._client.activity
        try:
            with trio.fail_after(self._guard.timeout_s):
                await self._admit(respond, send)
            activity.successful_authentication.record()
            if self._client.sasl is None or not self._client.sasl.can_begin_again:
                activity.successful_authentication_no_reauth_total += 1
            return True
        except TlsDisconnectedError:
            # Probes of the port do so all the time: it is no failed login.
            raise ClientGoneError from None
        except TlsHandshakeError as error:
            reason = f"SSL handshake failed: {error}"
        except (DecodeError, InvalidFrameError) as error:
            reason = reason_to_close(error, self._buffer, self._client)
        except ClientRefusedError as error:
            reason, answer = str(error), error.answer
        except trio.TooSlowError:
            reason = "gregor.authentication.timeout.ms passed"
        activity.failed_authentication.record()
        client = self._client
        logger.info(
            "Failed authentication with /%s (channelId=%s) (%s)", client.host, client.connection_id, printable(reason)
        )
        await trio.sleep(self._guard.failure_delay_s)
        if answer is not None:
            with trio.move_on_after(self._guard.timeout_s):
                await send(answer)
        return False

    async def _admit(self, respond: Respond, send: Send) -> None:
        if isinstance(self._transport, TlsTransport):
            await self._transport.handshake()
            self._guard.identify(self._client, self._transport.peer_certificate())
        authenticator = self._guard.authenticator(self._client)
        while authenticator is not None and not authenticator.is_complete:
            answer = await authenticator.answer(await self._next_frame(), respond)
            if answer is not None:
                await send(answer)

    async def _next_frame(self) -> memoryview:
        # A client that never stops sending must not keep the loop, nor escape the timeout.
        await trio.lowlevel.checkpoint()
        while (frame := self._buffer.next_frame()) is None:
            capacity_bytes = self._buffer.capacity_bytes
            space = self._buffer.space()
            if self._buffer.capacity_bytes > capacity_bytes:
                self._grown()
                await trio.lowlevel.checkpoint()
            count = self._transport.receive_now(space)
            if count == WOULD_BLOCK:
                await trio.lowlevel.wait_readable(self._transport.descriptor)
            elif count == 0:
                raise ClientGoneError
            else:
                self._buffer.received(count)
        return frame
