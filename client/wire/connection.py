"""One connection to one broker: requests are written in the order of submission, and answers are matched in that
order.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from functools import cache
from typing import Any

import trio

from ...protocol.apis import AnyApiKey, api_key_named, request_header_version
from ...protocol.codec import encode
from ...protocol.errors import BrokerError, DecodeError, ErrorCode
from ...protocol.framing import FrameReader
from ...protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ...protocol.messages.header import RequestHeader
from ...protocol.schema import Message
from ..config import ClientConfig
from ..errors import ConnectionLostError
from ..metrics import Metrics
from .api_versions import SpokenVersions
from .pending_answer import PendingAnswer, Response

MAX_ANSWER_BYTES = 2**31 - 1
READ_BYTES = 256 * 1024
SOFTWARE_NAME = "gregor"


class Connection:
    """A connection to one broker, open while its `run` is running.

    Invariant: `_pending` holds the requests without an answer in the order in which they were submitted, which is
    the order in which they are written.
    """

    def __init__(self, stream: trio.abc.Stream, node: str, config: ClientConfig, metrics: Metrics) -> None:
        self.node = node
        self.config = config
        self.versions = SpokenVersions({})
        self.is_closed = False
        self.close_reason = "the connection is closed"
        self._stream = stream
        self._metrics = metrics
        self._pending: deque[PendingAnswer[Any]] = deque()
        self._outgoing: list[bytes] = []
        self._unwritten: list[Callable[[], None]] = []
        self._has_outgoing = trio.Event()
        self._next_correlation_id = 0
        self._lifetime = trio.CancelScope()
        self._patience = trio.CancelScope()

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
        try:
            async with trio.open_nursery() as nursery:
                self._lifetime = nursery.cancel_scope
                nursery.start_soon(self._read_answers)
                nursery.start_soon(self._write_requests)
                await self._negotiate()
                task_status.started()
                has_started = True
        except* (ConnectionLostError, BrokerError) as group:
            reason = self.close_reason if self.is_closed else group.exceptions[0]
            raise ConnectionLostError(f"no Kafka answers at {self.node}: {reason}") from None
        finally:
            self._fail_pending()
            with trio.move_on_after(0):
                await trio.aclose_forcefully(self._stream)
        if not has_started:
            raise ConnectionLostError(f"{self.node}: {self.close_reason}")

    async def _negotiate(self) -> None:
        if self.config.api_version is not None:
            self.versions = SpokenVersions.pinned(self.config.api_version)
            return
        for version in (3, 0):
            request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version="1")
            pending = self.submit(request, ApiVersionsResponse, version=version)
            await pending.arrived()
            # A broker without the version answers with an error in the layout of version 0 (KIP-511).
            if version and pending.begins_with(ErrorCode.UNSUPPORTED_VERSION):
                continue
            answer = pending.result()
            if answer.error_code:
                raise BrokerError(ErrorCode(answer.error_code), "ApiVersions")
            self.versions = SpokenVersions.negotiated(answer)
            return

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
        key = api_key_of(message)
        version = self.versions.version(key) if version is None else version
        timeout_ms = self.config.request_timeout_ms if timeout_ms is None else timeout_ms
        pending = PendingAnswer(self, key, version, answer, timeout_ms, on_arrival)
        pending.correlation_id = self._enqueue(message, key, version)
        self._pending.append(pending)
        if pending.deadline < self._patience.deadline:
            self._patience.deadline = pending.deadline
        return pending

    def submit_without_answer(self, message: Message, version: int, on_written: Callable[[], None]) -> None:
        """Enqueue a request that the broker does not answer (Produce with acks=0).

        `on_written` is called when the request was written, or when the connection has ended before: then
        `is_closed` is True. Raises the errors of `submit`.
        """
        key = api_key_of(message)
        self._enqueue(message, key, version)
        self._unwritten.append(on_written)

    def _enqueue(self, message: Message, key: AnyApiKey, version: int) -> int:
        """Append the request's bytes to the write buffer; return its correlation id."""
        if self.is_closed:
            raise ConnectionLostError(f"{self.node}: {self.close_reason}")
        correlation_id = self._next_correlation_id
        header = RequestHeader(
            request_api_key=key,
            request_api_version=version,
            correlation_id=correlation_id,
            client_id=self.config.client_id,
        )
        head = encode(header, request_header_version(key, version))
        body = encode(message, version)
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        self._metrics.submitted(self.node, 4 + len(head) + len(body))
        self._outgoing += ((len(head) + len(body)).to_bytes(4, "big"), head, body)
        self._has_outgoing.set()
        return correlation_id

    async def _write_requests(self) -> None:
        """Write submitted requests, several in one call if several are pending, until `close`."""
        try:
            while True:
                await self._has_outgoing.wait()
                self._has_outgoing = trio.Event()
                data = b"".join(self._outgoing)
                self._outgoing.clear()
                count = len(self._unwritten)
                await self._stream.send_all(data)
                written = self._unwritten[:count]
                del self._unwritten[:count]
                for on_written in written:
                    on_written()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.close("the broker closed the connection")

    # --- answers ---

    async def _read_answers(self) -> None:
        """Match answers to requests until the broker disconnects, times out or sends invalid data, or until `close`."""
        reader = FrameReader(MAX_ANSWER_BYTES)
        reason = "the broker closed the connection"
        is_first = True
        try:
            with self._patience:
                while True:
                    self._patience.deadline = self._give_up_at()
                    data = await self._stream.receive_some(READ_BYTES)
                    if not data:
                        break
                    self._metrics.received(self.node, len(data))
                    if is_first:
                        is_first = False
                        _check_first_bytes(data)
                    reader.feed(data)
                    while (frame := reader.next_frame()) is not None:
                        self._deliver(frame)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        except DecodeError as fault:
            reason = f"malformed answer: {fault}"
        if self._patience.cancelled_caught:
            late = min(self._pending, key=lambda pending: pending.deadline, default=None)
            reason = f"no answer to {late.key.name} within {late.timeout_ms} ms" if late else "it was idle for long"
        self.close(reason)

    def _give_up_at(self) -> float:
        """Return the time at which to end the connection without data: the first deadline, or `connections.max.idle.ms`
        from now.
        """
        if self._pending:
            return min(pending.deadline for pending in self._pending)
        idle_ms = self.config.connections_max_idle_ms
        return trio.current_time() + idle_ms / 1000 if idle_ms >= 0 else math.inf

    def _deliver(self, frame: memoryview) -> None:
        if not self._pending:
            raise DecodeError("an answer that nobody asked for")
        self._pending[0].take(frame)
        self._pending.popleft().finish()

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


def _check_first_bytes(data: bytes | bytearray) -> None:
    """Raise DecodeError if these are the first bytes of another protocol.

    Read as the size of a frame, such bytes announce hundreds of megabytes, for which the client would wait without a
    word.
    """
    if data[:1] in (b"\x15", b"\x16") and data[1:2] == b"\x03":
        raise DecodeError("TLS is spoken there; security_protocol=SSL speaks it")
    start = bytes(data[:4])
    if len(start) == 4 and start.isascii() and start.decode().isprintable():
        raise DecodeError(f"no Kafka broker begins with {bytes(data[:12])!r}")


def api_key_of(message: Message | type[Message]) -> AnyApiKey:
    """Return the API key of a message or of its class: each API has a module that is named after it."""
    message_class = message if isinstance(message, type) else type(message)
    return _api_key_of_module(message_class.__module__)


@cache
def _api_key_of_module(module: str) -> AnyApiKey:
    return api_key_named(module.rpartition(".")[2].upper())
