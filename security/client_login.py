"""The requests of a client that logs in by SASL, without input or output (Kafka ``SaslClientAuthenticator``)."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Generator
from random import Random
from typing import TypeVar

from ..protocol.apis import ApiKey
from ..protocol.codec import decode
from ..protocol.conversation import Conversation
from ..protocol.errors import BrokerError, ErrorCode
from ..protocol.framing import LENGTH
from ..protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ..protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ..protocol.schema import Message
from ..protocol.spoken_versions import Negotiation, SpokenVersions
from .errors import SaslAuthenticationError
from .sasl import ClientExchange

LARGEST_ANSWER_BYTES = 1 << 20
"""The largest answer that a client accepts before it has authenticated the broker."""
SESSION_PART = 0.85
"""The part of a session after which a client authenticates again; `SESSION_PART_JITTER` times a random number is added,
so that connections that were made together do not authenticate together."""
SESSION_PART_JITTER = 0.10

T = TypeVar("T")
Steps = Generator[bytes, memoryview, float | None]
"""Yields bytes to send, and takes the frame that answers them, without its length. Returns the length of the session in
seconds, None if the session does not end (KIP-368)."""
Requests = Generator[tuple[Message, int], memoryview, T]
"""Yields a request and its version, and takes the body of its answer."""

InThread = Callable[[Callable[[], object]], Awaitable[object]]
"""Runs a function in a thread, as `trio.to_thread.run_sync` does."""


def reauthentication_delay_s(session_s: float | None, random: Random) -> float:
    """Return the seconds from a login until the client authenticates again on its connection (KIP-368)."""
    return math.inf if session_s is None else session_s * (SESSION_PART + random.random() * SESSION_PART_JITTER)


class ClientLogin:
    """A login: negotiation of versions on a new connection, SaslHandshake, and the tokens of one exchange."""

    def __init__(
        self, mechanism: str, exchange: ClientExchange, client_id: str, versions: SpokenVersions | None = None
    ) -> None:
        """Prepare a login; ``versions`` are known only where they are not negotiated."""
        self._mechanism = mechanism
        self._exchange = exchange
        self._conversation = Conversation(client_id, limit_bytes=LARGEST_ANSWER_BYTES)
        self._versions = versions

    def frame_size(self, prefix: bytes | memoryview) -> int:
        """Return the size of the frame behind its length. Raises DecodeError for a length that no broker sends."""
        return self._conversation.frame_size(prefix)

    def steps(self) -> Steps:
        """Log in on a new connection; see `Steps`.

        Raises SaslAuthenticationError with the broker's reason, DecodeError for a malformed answer, BrokerError if the
        broker has no SASL.
        """
        versions = self._versions or (yield from self._framed(_negotiate()))
        versions.version(ApiKey.SASL_HANDSHAKE)
        try:
            versions.version(ApiKey.SASL_AUTHENTICATE)
        except BrokerError:
            # A broker before 1.0 takes tokens by themselves.
            yield from self._framed(self._handshake(0))
            yield from self._bare_tokens()
            return None
        return (yield from self._framed(self.requests(versions)))

    async def prepare(self, answer: bytes | memoryview, in_thread: InThread) -> None:
        """Compute the long part of the next step in a thread, so that the event loop can run other tasks meanwhile."""
        work = self._exchange.long_work(bytes(answer))
        if work is not None:
            await in_thread(work)

    async def run(
        self,
        send: Callable[[bytes], Awaitable[None]],
        receive: Callable[[bytearray, int], Awaitable[None]],
        in_thread: InThread,
    ) -> float | None:
        """Log in on a new connection by its functions; return the length of the session as `Steps` does.

        ``receive`` extends a buffer to at least a size, ``in_thread`` runs a function in a thread. Raises what `steps`,
        `frame_size` and the functions raise.
        """
        steps = self.steps()
        received = bytearray()
        try:
            data = next(steps)
            while True:
                await send(data)
                await receive(received, LENGTH.size)
                end = LENGTH.size + self.frame_size(bytes(received[: LENGTH.size]))
                await receive(received, end)
                frame = bytes(received[LENGTH.size : end])
                del received[:end]
                await self.prepare(frame, in_thread)
                data = steps.send(memoryview(frame))
        except StopIteration as stop:
            session_s: float | None = stop.value
            return session_s

    def requests(self, versions: SpokenVersions) -> Requests[float | None]:
        """Log in with requests of a connection that has negotiated its versions, also to authenticate again (KIP-368).

        Returns the length of the session as `Steps` does. Raises SaslAuthenticationError with the broker's reason,
        DecodeError, BrokerError.
        """
        version = versions.version(ApiKey.SASL_AUTHENTICATE)
        yield from self._handshake(1)
        lifetime_ms = 0
        token: bytes | None = self._exchange.first()
        while token is not None:
            body = yield SaslAuthenticateRequest(auth_bytes=token), version
            answer = decode(SaslAuthenticateResponse, body, version)
            if answer.error_code:
                raise SaslAuthenticationError(answer.error_message or ErrorCode(answer.error_code).name)
            lifetime_ms = answer.session_lifetime_ms
            token = self._exchange.respond(bytes(answer.auth_bytes))
        return lifetime_ms / 1000 if lifetime_ms > 0 else None

    def _handshake(self, version: int) -> Requests[None]:
        agreed = decode(
            SaslHandshakeResponse, (yield SaslHandshakeRequest(mechanism=self._mechanism), version), version
        )
        if agreed.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            raise SaslAuthenticationError(
                f"Client SASL mechanism '{self._mechanism}' not enabled in the server, enabled mechanisms are "
                f"[{', '.join(agreed.mechanisms)}]"
            )
        if agreed.error_code:
            raise SaslAuthenticationError(f"the broker refuses SaslHandshake: {ErrorCode(agreed.error_code).name}")

    def _framed(self, requests: Requests[T]) -> Generator[bytes, memoryview, T]:
        """Return the bytes of requests, and give them the bodies of the answers in frames."""
        try:
            message, version = next(requests)
            while True:
                self._conversation.submit(message, version)
                frame = yield b"".join(self._conversation.take_outgoing())
                body = self._conversation.answer(frame).body
                assert body is not None
                message, version = requests.send(body)
        except StopIteration as end:
            result: T = end.value
            return result

    def _bare_tokens(self) -> Generator[bytes, memoryview, None]:
        token: bytes | None = self._exchange.first()
        while token is not None:
            token = self._exchange.respond(bytes((yield LENGTH.pack(len(token)) + token)))


def _negotiate() -> Requests[SpokenVersions]:
    negotiation = Negotiation()
    versions = None
    while versions is None:
        versions = negotiation.take((yield negotiation.request, negotiation.version))
    return versions
