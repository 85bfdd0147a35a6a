"""One connection to one broker: requests are written in the order of submission, and answers are matched in that
order.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import trio

from ...protocol.apis import AnyApiKey
from ...protocol.codec import Buffer
from ...protocol.conversation import Conversation
from ...protocol.errors import BrokerError, DecodeError
from ...protocol.messages.api_versions import ApiVersionsResponse
from ...protocol.schema import Message
from ...protocol.spoken_versions import Negotiation, SpokenVersions
from ...security.client_login import reauthentication_delay_s
from ...security.errors import SaslAuthenticationError
from ...security.tls import tls_refusal
from ..config import ClientConfig
from ..errors import AuthenticationFailedError, ConnectionLostError
from ..metrics import Metrics
from .byte_stream import ByteStream
from .login import log_in, new_login
from .pending_answer import PendingAnswer, Response

logger = logging.getLogger(__name__)

CLOSED = "the broker closed the connection"


class Connection:
    """A connection to one broker, open while its `run` is running.

    Invariant: `_pending` holds the requests without an answer in the order in which they are written, which is the
    order in which they were submitted; only the requests of a login overtake those that are not written yet.
    """

    def __init__(self, stream: trio.abc.Stream, node: str, config: ClientConfig, metrics: Metrics) -> None:
        self.node = node
        self.config = config
        self.is_closed = False
        self.close_reason = "the connection is closed"
        self._stream = stream
        self._bytes = ByteStream(stream)
        self._metrics = metrics
        self._conversation = Conversation(config.client_id, limit_bytes=config.max_answer_bytes)
        self._pending: deque[PendingAnswer[Any]] = deque()
        self._outgoing: list[bytes] = []
        self._unsent = memoryview(b"")
        """The rest of requests that were sent in part, which nothing may overtake."""
        self._is_sending = False
        self._outgoing_count = 0
        """The number of requests in `_outgoing` that have an answer."""
        self._unwritten: list[Callable[[], None]] = []
        self._has_outgoing = trio.Event()
        self._tls_refusal: str | None = None
        """The reason for which the broker refused the client after the TLS handshake."""
        self._random = Random()
        self._authenticates_at = math.inf
        """The time after which the client authenticates again before it writes: its SASL session ends soon."""
        self._lifetime = trio.CancelScope()
        self._patience = trio.CancelScope()
        """The scope of reading. It ends at the time of `_give_up_at` or before; if before, another one is entered."""
        self._heard_at = trio.current_time()
        """The time of the last bytes from the broker."""

    @property
    def versions(self) -> SpokenVersions:
        """The versions to send; empty before the negotiation."""
        return self._conversation.versions

    @property
    def in_flight_count(self) -> int:
        """The number of requests that await their answers."""
        return len(self._pending)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Negotiate the versions with the broker, report started, then write and read until the connection ends.

        Raises ConnectionLostError only before it has started; later the error is raised to the callers of the
        pending requests.
        """
        has_started = False
        session_s = None
        try:
            if self.config.security.uses_sasl:
                session_s = await log_in(self._stream, self.config)
            logged_in_at = trio.current_time()
            async with trio.open_nursery() as nursery:
                self._lifetime = nursery.cancel_scope
                nursery.start_soon(self._read_answers)
                nursery.start_soon(self._write_requests)
                await self._negotiate()
                # Not before: a client cannot authenticate again whose broker's versions are unknown to it.
                self._begin_session(session_s, logged_in_at)
                task_status.started()
                has_started = True
        except* AuthenticationFailedError as group:
            raise AuthenticationFailedError(f"{self.node}: {group.exceptions[0]}") from None
        except* (ConnectionLostError, BrokerError) as group:
            reason = self.close_reason if self.is_closed else group.exceptions[0]
            if self._tls_refusal is not None and not has_started:
                raise AuthenticationFailedError(f"{self.node}: {reason}") from None
            hint = f"; {self._closed_hint()}" if str(reason).startswith(CLOSED) and not has_started else ""
            raise ConnectionLostError(f"no Kafka broker answers at {self.node}: {reason}{hint}") from None
        finally:
            self._fail_pending()
            with trio.move_on_after(0):
                await trio.aclose_forcefully(self._stream)
        if not has_started:
            raise ConnectionLostError(f"{self.node}: {self.close_reason}")

    def _closed_hint(self) -> str:
        """Return the likely mistake if a broker closes a connection before it has answered."""
        return f"its listener may have another security.protocol than {self.config.security.protocol}"

    async def _negotiate(self) -> None:
        if self.config.api_version is not None:
            self._conversation.versions = SpokenVersions.pinned(self.config.api_version)
            return
        negotiation = Negotiation()
        versions = None
        while versions is None:
            pending = self.submit(negotiation.request, ApiVersionsResponse, version=negotiation.version)
            body = await pending.arrived()
            try:
                versions = negotiation.take(body)
            except DecodeError as fault:
                raise ConnectionLostError(f"malformed API_VERSIONS answer: {fault}") from fault
        self._conversation.versions = versions

    # --- sessions (KIP-368) ---

    def _begin_session(self, length_s: float | None, logged_in_at: float) -> None:
        self._authenticates_at = logged_in_at + reauthentication_delay_s(length_s, self._random)

    async def _authenticate_again(self) -> None:
        """Log in on the live connection, before what waits to be written, and after what was written before.

        Kafka's client does so too: a broker refuses any other request during a login, and closes a connection whose
        session has ended when it sends one. If the login fails, the connection is closed.
        """
        try:
            login = await new_login(self.config)
            requests = login.requests(self.versions)
            message, version = next(requests)
            while True:
                body = await self._ask_first(message, version)
                await login.prepare(body, trio.to_thread.run_sync)
                message, version = requests.send(body)
        except StopIteration as end:
            self._begin_session(end.value, trio.current_time())
        except (SaslAuthenticationError, BrokerError) as failure:
            logger.warning("%s: cannot authenticate again: %s", self.node, failure)
            self.close(f"cannot authenticate again: {failure}")
        except DecodeError as fault:
            self.close(f"malformed answer during the SASL login: {fault}")
        except ConnectionLostError:
            assert self.is_closed

    async def _ask_first(self, message: Message, version: int) -> memoryview:
        """Write a request ahead of all that waits to be written; return the body of its answer."""
        self._check_open()
        behind = self._outgoing_count
        request = self._conversation.submit(message, version, ahead_of=behind)
        now = trio.current_time()
        pending = PendingAnswer(self, request, Message, self.config.request_timeout_ms, None, now)
        self._pending.insert(len(self._pending) - behind, pending)
        self._patience.deadline = min(self._patience.deadline, pending.deadline)
        self._metrics.submitted(self.node, request.size_bytes, now)
        await self._stream.send_all(b"".join(self._conversation.take_outgoing()))
        return await pending.arrived()

    # --- requests ---

    async def request(
        self, message: Message, answer: type[Response], *, version: int | None = None, timeout_ms: int | None = None
    ) -> Response:
        """Send a request and wait for its answer, decoded as `answer`. In a cancelled scope nothing is sent.

        Raises ConnectionLostError when the connection ends first or `timeout_ms` (default `request.timeout.ms`)
        passes, which ends the connection as in Kafka; BrokerError UNSUPPORTED_VERSION if the broker lacks the API.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        return await self.submit(message, answer, version=version, timeout_ms=timeout_ms).wait()

    def submit(
        self,
        message: Message,
        answer: type[Response],
        *,
        version: int | None = None,
        timeout_ms: int | None = None,
        on_arrival: Callable[[PendingAnswer[Response]], None] | None = None,
    ) -> PendingAnswer[Response]:
        """Enqueue a request without waiting: requests are written in the order of these calls.

        With `on_arrival` no task needs to wait: this callback is called when the answer has arrived, or when the
        connection has ended without it. Raises ConnectionLostError on a closed connection, BrokerError
        UNSUPPORTED_VERSION.
        """
        now = trio.current_time()
        timeout_ms = self.config.request_timeout_ms if timeout_ms is None else timeout_ms
        self._check_open()
        request = self._conversation.submit(message, version)
        pending = self._enqueue(PendingAnswer(self, request, answer, timeout_ms, on_arrival, now), now)
        self._has_outgoing.set()
        return pending

    def submit_encoded(
        self,
        key: AnyApiKey,
        version: int,
        body: Sequence[Buffer],
        answer: type[Response],
        on_arrival: Callable[[PendingAnswer[Response]], None],
        now: float,
    ) -> PendingAnswer[Response]:
        """Enqueue a request as `submit` does, whose encoded body comes in pieces; `now` is the time of trio's clock.

        The caller calls `flush` after one or more such requests.
        """
        self._check_open()
        request = self._conversation.submit_encoded(key, version, body)
        pending = PendingAnswer(self, request, answer, self.config.request_timeout_ms, on_arrival, now)
        return self._enqueue(pending, now)

    def flush(self) -> None:
        """Send what was submitted, at once as far as the system takes it without waiting."""
        if not self._outgoing or self._is_sending or self._unsent or trio.current_time() >= self._authenticates_at:
            self._has_outgoing.set()
            return
        data = self._take_outgoing()
        sent = self._bytes.send_now(data)
        if sent < len(data):
            self._unsent = memoryview(data)[sent:]
            self._has_outgoing.set()

    def _take_outgoing(self) -> bytes:
        """Return the bytes of all submitted requests, and forget them."""
        data = self._outgoing[0] if len(self._outgoing) == 1 else b"".join(self._outgoing)
        self._outgoing.clear()
        self._outgoing_count = 0
        return data

    def _enqueue(self, pending: PendingAnswer[Response], now: float) -> PendingAnswer[Response]:
        """Append the bytes of a request with an answer to the write buffer."""
        self._buffer_outgoing(pending.size_bytes, now)
        self._outgoing_count += 1
        self._pending.append(pending)
        if pending.deadline < self._patience.deadline:
            self._patience.deadline = pending.deadline
        return pending

    def submit_without_answer(self, message: Message, version: int, on_written: Callable[[], None]) -> None:
        """Enqueue a request that the broker does not answer (Produce with acks=0).

        `on_written` is called when the request was written, or when the connection has ended before: then
        `is_closed` is True. Raises the errors of `submit`.
        """
        self._check_open()
        request = self._conversation.submit(message, version, has_answer=False)
        self._buffer_outgoing(request.size_bytes, trio.current_time())
        self._unwritten.append(on_written)
        self._has_outgoing.set()

    def _check_open(self) -> None:
        if self.is_closed:
            raise ConnectionLostError(f"{self.node}: {self.close_reason}")

    def _buffer_outgoing(self, size_bytes: int, now: float) -> None:
        """Append the bytes of the last request to the write buffer."""
        self._metrics.submitted(self.node, size_bytes, now)
        # Joined at once, since the caller may change the memory of its records before they are written.
        self._outgoing.append(b"".join(self._conversation.take_outgoing()))

    async def _write_requests(self) -> None:
        """Write submitted requests, several in one call if several are pending, until `close`."""
        try:
            while True:
                self._is_sending = False
                await self._has_outgoing.wait()
                self._is_sending = True
                if self._unsent:
                    await self._stream.send_all(self._unsent)
                    self._unsent = memoryview(b"")
                if trio.current_time() >= self._authenticates_at:
                    await self._authenticate_again()
                self._has_outgoing = trio.Event()
                data = self._take_outgoing()
                count = len(self._unwritten)
                await self._stream.send_all(data)
                written = self._unwritten[:count]
                del self._unwritten[:count]
                for on_written in written:
                    on_written()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.close(CLOSED)

    # --- answers ---

    async def _read_answers(self) -> None:
        """Match answers to requests until the broker disconnects, times out or sends invalid data, or until `close`."""
        reason = CLOSED
        try:
            while (now := trio.current_time()) < (give_up_at := self._give_up_at()):
                self._patience = trio.CancelScope(deadline=give_up_at)
                with self._patience:
                    await self._read_until_closed()
                    break
            else:
                reason = self._reason_to_give_up(now)
        except trio.BrokenResourceError as failure:
            self._tls_refusal = tls_refusal(failure.__cause__)
            reason = self._tls_refusal or reason
        except trio.ClosedResourceError:
            pass
        except DecodeError as fault:
            reason = f"malformed answer: {fault}"
        self.close(reason)

    async def _read_until_closed(self) -> None:
        """Match answers to requests until the broker closes the connection."""
        while True:
            size_bytes = await self._bytes.receive_into(self._conversation)
            if not size_bytes:
                # If a login was refused just now, its error is raised instead.
                await trio.lowlevel.checkpoint()
                return
            self._heard_at = trio.current_time()
            self._metrics.received(self.node, size_bytes, self._heard_at)
            while self._conversation.next_answered() is not None:
                # Answers arrive in the order of the requests, which is that of `_pending`.
                self._pending.popleft().finish()
            if not self._pending and (give_up_at := self._give_up_at()) < self._patience.deadline:
                self._patience.deadline = give_up_at

    def _reason_to_give_up(self, now: float) -> str:
        late = min(self._pending, key=lambda pending: pending.deadline, default=None)
        if late is None or late.deadline > now:
            return "the connection was idle for too long"
        return f"no answer to {late.key.name} within {late.timeout_ms} ms"

    def _give_up_at(self) -> float:
        """Return the time at which to end the connection without data: the first deadline, or `connections.max.idle.ms`
        after the last data.
        """
        if self._pending:
            return min(pending.deadline for pending in self._pending)
        idle_ms = self.config.connections_max_idle_ms
        return self._heard_at + idle_ms / 1000 if idle_ms >= 0 else math.inf

    # --- the end ---

    def close(self, reason: str = "the connection is closed") -> None:
        """End the connection; the pending requests fail with `reason`."""
        if self.is_closed:
            return
        self.is_closed = True
        self.close_reason = reason
        self._fail_pending()
        self._lifetime.cancel()

    def _fail_pending(self) -> None:
        self.is_closed = True
        while self._pending:
            self._pending.popleft().finish()
        while self._unwritten:
            self._unwritten.pop(0)()
