"""One connection to one broker: requests go out as they come, answers are matched to them in order."""

from __future__ import annotations

import math
from collections import deque
from functools import cache
from typing import Any, Generic, TypeVar

import trio

from ..protocol.apis import AnyApiKey, ApiKey, GregorApiKey, request_header_version, response_header_version
from ..protocol.codec import decode, encode
from ..protocol.errors import BrokerError, DecodeError, ErrorCode
from ..protocol.framing import FrameReader
from ..protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ..protocol.messages.header import RequestHeader
from ..protocol.schema import Message
from .api_versions import SpokenVersions
from .config import ClientConfig
from .errors import ConnectionLostError
from .metrics import Metrics

Response = TypeVar("Response", bound=Message)

MAX_ANSWER_BYTES = 2**31 - 1
READ_BYTES = 256 * 1024
SOFTWARE_NAME = "gregor"
CORRELATION_ID_SIZE = 4


class PendingAnswer(Generic[Response]):
    """A request on its way, and later its answer; made by `Connection.submit`."""

    __slots__ = ("_connection", "answer_class", "arrived", "body", "correlation_id", "key", "version")

    def __init__(
        self, connection: Connection, key: AnyApiKey, version: int, answer_class: type[Response], correlation_id: int
    ) -> None:
        self._connection = connection
        self.key = key
        self.version = version
        self.answer_class = answer_class
        self.correlation_id = correlation_id
        self.arrived = trio.Event()
        self.body: memoryview | None = None

    async def answer(self, timeout_ms: int | None = None) -> Response:
        """Wait for the answer and decode it. Raises as `Connection.request`."""
        body = await self.undecoded(timeout_ms)
        try:
            return decode(self.answer_class, body, self.version)
        except DecodeError as fault:
            self._connection.close(f"malformed {self.key.name} answer: {fault}")
            raise ConnectionLostError(self._connection.close_reason) from fault

    async def undecoded(self, timeout_ms: int | None = None) -> memoryview:
        """Wait for the answer's bytes. Raises ConnectionLostError."""
        connection = self._connection
        timeout_ms = connection.config.request_timeout_ms if timeout_ms is None else timeout_ms
        with trio.move_on_after(timeout_ms / 1000) as waiting:
            await self.arrived.wait()
        if waiting.cancelled_caught:
            connection.close(f"no answer to {self.key.name} within {timeout_ms} ms")
        if self.body is None:
            raise ConnectionLostError(f"{connection.node}: {connection.close_reason}")
        return self.body


class Connection:
    """Alive while its `run` is.

    Invariant: `_pending` holds the requests without an answer in the order in which they were submitted, which is the
    order in which they are written.
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
        self._unwritten: list[trio.Event] = []
        self._has_outgoing = trio.Event()
        self._next_correlation_id = 0
        self._lifetime = trio.CancelScope()

    @property
    def in_flight_count(self) -> int:
        """How many requests await their answers."""
        return len(self._pending)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Learn the broker's versions, report started, then write and read until the connection ends.

        Raises ConnectionLostError only before it has started; later the requests under way get it.
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
            raise ConnectionLostError(f"no Kafka answers at {self.node}: {group.exceptions[0]}") from None
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
            # A broker that lacks the version says so in the layout of version 0 (KIP-511).
            if version and _begins_with(await pending.undecoded(), ErrorCode.UNSUPPORTED_VERSION):
                continue
            answer = await pending.answer()
            if answer.error_code:
                raise BrokerError(ErrorCode(answer.error_code), "ApiVersions")
            self.versions = SpokenVersions.negotiated(answer)
            return

    # --- requests ---

    async def request(
        self, message: Message, answer: type[Response], *, version: int | None = None, timeout_ms: int | None = None
    ) -> Response:
        """Send a request and wait for its answer, decoded as `answer`.

        Raises ConnectionLostError when the connection ends first or `timeout_ms` (default `request.timeout.ms`)
        passes, which ends the connection as in Kafka; BrokerError UNSUPPORTED_VERSION if the broker lacks the API.
        """
        return await self.submit(message, answer, version=version).answer(timeout_ms)

    def submit(
        self, message: Message, answer: type[Response], *, version: int | None = None
    ) -> PendingAnswer[Response]:
        """Put a request in line without waiting: requests are written in the order of these calls.

        Raises ConnectionLostError on a closed connection, BrokerError UNSUPPORTED_VERSION.
        """
        key = api_key_of(message)
        version = self.versions.version(key) if version is None else version
        pending = PendingAnswer(self, key, version, answer, self._next_correlation_id)
        self._enqueue(message, key, version)
        self._pending.append(pending)
        return pending

    def submit_without_answer(self, message: Message) -> trio.Event:
        """Put a request in line that the broker does not answer (Produce with acks=0).

        Returns what is set when it was written, or never will be: then `is_closed` is True. Raises as `submit`.
        """
        key = api_key_of(message)
        self._enqueue(message, key, self.versions.version(key))
        written = trio.Event()
        self._unwritten.append(written)
        return written

    def _enqueue(self, message: Message, key: AnyApiKey, version: int) -> None:
        if self.is_closed:
            raise ConnectionLostError(f"{self.node}: {self.close_reason}")
        header = RequestHeader(
            request_api_key=key,
            request_api_version=version,
            correlation_id=self._next_correlation_id,
            client_id=self.config.client_id,
        )
        head = encode(header, request_header_version(key, version))
        body = encode(message, version)
        self._next_correlation_id = (self._next_correlation_id + 1) & 0x7FFFFFFF
        self._metrics.submitted(self.node, 4 + len(head) + len(body))
        self._outgoing += ((len(head) + len(body)).to_bytes(4, "big"), head, body)
        self._has_outgoing.set()

    async def _write_requests(self) -> None:
        """Write what was submitted, several requests at once where they have piled up, until `close`."""
        try:
            while True:
                await self._has_outgoing.wait()
                self._has_outgoing = trio.Event()
                data = b"".join(self._outgoing)
                self._outgoing.clear()
                count = len(self._unwritten)
                await self._stream.send_all(data)
                for event in self._unwritten[:count]:
                    event.set()
                del self._unwritten[:count]
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.close("the broker hung up")

    # --- answers ---

    async def _read_answers(self) -> None:
        """Match answers to requests until the broker hangs up, sends nonsense or `close` was called."""
        reader = FrameReader(MAX_ANSWER_BYTES)
        idle_ms = self.config.connections_max_idle_ms
        idle_limit = idle_ms / 1000 if idle_ms >= 0 else math.inf
        reason = "the broker hung up"
        try:
            while not self.is_closed:
                data: bytes | bytearray = b""
                with trio.move_on_after(idle_limit) as waiting:
                    data = await self._stream.receive_some(READ_BYTES)
                if waiting.cancelled_caught and self._pending:
                    continue
                if not data:
                    break
                self._metrics.received(self.node, len(data))
                reader.feed(data)
                while (frame := reader.next_frame()) is not None:
                    self._deliver(frame)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        except DecodeError as fault:
            reason = f"malformed answer: {fault}"
        self.close(reason)

    def _deliver(self, frame: memoryview) -> None:
        if not self._pending:
            raise DecodeError("an answer that nobody asked for")
        pending = self._pending[0]
        correlation_id = int.from_bytes(frame[:CORRELATION_ID_SIZE], "big")
        if correlation_id != pending.correlation_id:
            raise DecodeError(f"answer {correlation_id} instead of {pending.correlation_id}")
        pending.body = frame[_response_header_size(frame, response_header_version(pending.key, pending.version)) :]
        self._pending.popleft()
        pending.arrived.set()

    # --- the end ---

    def close(self, reason: str = "the connection is closed") -> None:
        """End the connection; what is under way fails with `reason`."""
        if self.is_closed:
            return
        self.is_closed = True
        self.close_reason = reason
        self._fail_pending()
        self._lifetime.cancel()

    def _fail_pending(self) -> None:
        self.is_closed = True
        while self._pending:
            self._pending.popleft().arrived.set()
        while self._unwritten:
            self._unwritten.pop().set()


def api_key_of(message: Message) -> AnyApiKey:
    """The API that a request belongs to: each has a module of its own that is named after it."""
    return _api_key_of_module(type(message).__module__)


@cache
def _api_key_of_module(module: str) -> AnyApiKey:
    name = module.rpartition(".")[2].upper()
    return ApiKey[name] if name in ApiKey.__members__ else GregorApiKey[name]


def _begins_with(body: memoryview, code: ErrorCode) -> bool:
    return bytes(body[:2]) == int(code).to_bytes(2, "big")


def _response_header_size(frame: memoryview, header_version: int) -> int:
    """Bytes of the response header: the correlation id and, from version 1 on, tagged fields that are skipped."""
    position = CORRELATION_ID_SIZE
    if header_version == 0:
        return position
    try:
        count, position = _unsigned_varint(frame, position)
        for _ in range(count):
            _, position = _unsigned_varint(frame, position)
            size, position = _unsigned_varint(frame, position)
            position += size
    except IndexError as fault:
        raise DecodeError("the answer ends in its header") from fault
    return position


def _unsigned_varint(frame: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        byte = frame[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    return value, position
