"""One connection to one broker: requests go out as they come, answers are matched to them in order."""

from __future__ import annotations

import math
from collections import deque
from functools import cache
from typing import TypeVar

import trio

from ..protocol.apis import ApiKey, request_header_version, response_header_version
from ..protocol.codec import decode, encode
from ..protocol.errors import BrokerError, DecodeError, ErrorCode
from ..protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ..protocol.messages.header import RequestHeader
from ..protocol.schema import Message
from .answer_reader import AnswerReader
from .api_versions import SpokenVersions
from .config import ClientConfig
from .errors import ConnectionLostError
from .metrics import Metrics

Response = TypeVar("Response", bound=Message)

READ_BYTES = 256 * 1024
SOFTWARE_NAME = "gregor"
CORRELATION_ID_SIZE = 4


class _Pending:
    """A request that awaits its answer: the undecoded body, or the reason why there will be none."""

    __slots__ = ("arrived", "body", "correlation_id", "header_version")

    def __init__(self, correlation_id: int, header_version: int) -> None:
        self.correlation_id = correlation_id
        self.header_version = header_version
        self.arrived = trio.Event()
        self.body: memoryview | None = None


class Connection:
    """Made by `open_connection`, alive while its `run` is.

    Invariant: `_pending` holds the requests without an answer in the order in which they were written.
    """

    def __init__(self, stream: trio.abc.Stream, node: str, config: ClientConfig, metrics: Metrics) -> None:
        self.node = node
        self.versions = SpokenVersions({})
        self.is_closed = False
        self._stream = stream
        self._config = config
        self._metrics = metrics
        self._pending: deque[_Pending] = deque()
        self._write_lock = trio.Lock()
        self._next_correlation_id = 0
        self._close_reason = "the connection is closed"
        self._lifetime = trio.CancelScope()

    @property
    def in_flight_count(self) -> int:
        """How many requests await their answers."""
        return len(self._pending)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Learn the broker's versions, report started, then read answers until the connection ends.

        Raises ConnectionLostError only before it has started; later the requests under way get it.
        """
        try:
            async with trio.open_nursery() as nursery:
                self._lifetime = nursery.cancel_scope
                nursery.start_soon(self._read_answers)
                await self._negotiate()
                task_status.started()
        except* (ConnectionLostError, BrokerError) as group:
            raise ConnectionLostError(f"no Kafka answers at {self.node}: {group.exceptions[0]}") from None
        finally:
            self._fail_pending()
            with trio.move_on_after(0):
                await trio.aclose_forcefully(self._stream)

    async def _negotiate(self) -> None:
        if self._config.api_version is not None:
            self.versions = SpokenVersions.pinned(self._config.api_version)
            return
        for version in (3, 0):
            request = ApiVersionsRequest()
            if version >= 3:
                request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version="1")
            body = await self._exchange(request, ApiKey.API_VERSIONS, version)
            # A broker that lacks the version says so in the layout of version 0 (KIP-511).
            error = ErrorCode(int.from_bytes(bytes(body[:2]), "big", signed=True))
            if error is ErrorCode.UNSUPPORTED_VERSION and version:
                continue
            if error is not ErrorCode.NONE:
                raise BrokerError(error)
            self.versions = SpokenVersions.negotiated(decode(ApiVersionsResponse, body, version))
            return

    # --- requests ---

    async def request(
        self, message: Message, answer: type[Response], *, version: int | None = None, timeout_ms: int | None = None
    ) -> Response:
        """Send a request and wait for its answer, decoded as `answer`.

        Raises ConnectionLostError when the connection ends first or `timeout_ms` (default `request.timeout.ms`)
        passes, which ends the connection as in Kafka; BrokerError UNSUPPORTED_VERSION if the broker lacks the API.
        """
        key = api_key_of(message)
        version = self.versions.version(key) if version is None else version
        body = await self._exchange(message, key, version, timeout_ms=timeout_ms)
        try:
            return decode(answer, body, version)
        except DecodeError as fault:
            self.close(f"malformed {key.name} answer: {fault}")
            raise ConnectionLostError(self._close_reason) from fault

    async def send_without_answer(self, message: Message) -> None:
        """Send a request that the broker does not answer (Produce with acks=0)."""
        key = api_key_of(message)
        async with self._write_lock:
            await self._write(self._frame(message, key, self.versions.version(key))[1])

    async def _exchange(
        self, message: Message, key: ApiKey, version: int, *, timeout_ms: int | None = None
    ) -> memoryview:
        timeout_ms = self._config.request_timeout_ms if timeout_ms is None else timeout_ms
        with trio.move_on_after(timeout_ms / 1000):
            async with self._write_lock:
                correlation_id, frame = self._frame(message, key, version)
                pending = _Pending(correlation_id, response_header_version(key, version))
                # Before the write, as the answer may be read while the end of the frame is still being written.
                self._pending.append(pending)
                await self._write(frame)
            await pending.arrived.wait()
            if pending.body is None:
                raise ConnectionLostError(f"{self.node}: {self._close_reason}")
            return pending.body
        self.close(f"no answer to {key.name} within {timeout_ms} ms")
        raise ConnectionLostError(f"{self.node}: {self._close_reason}")

    def _frame(self, message: Message, key: ApiKey, version: int) -> tuple[int, bytes]:
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        header = RequestHeader(
            request_api_key=key,
            request_api_version=version,
            correlation_id=correlation_id,
            client_id=self._config.client_id,
        )
        head = encode(header, request_header_version(key, version))
        body = encode(message, version)
        return correlation_id, b"".join(((len(head) + len(body)).to_bytes(4, "big"), head, body))

    async def _write(self, frame: bytes) -> None:
        if self.is_closed:
            raise ConnectionLostError(f"{self.node}: {self._close_reason}")
        self._metrics.sent(self.node, len(frame))
        try:
            await self._stream.send_all(frame)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as fault:
            self.close("the broker hung up")
            raise ConnectionLostError(f"{self.node}: {self._close_reason}") from fault
        except trio.Cancelled:
            # Half a frame may be out, after which nothing else can be said.
            self.close("a request was cancelled while it was written")
            raise

    # --- answers ---

    async def _read_answers(self) -> None:
        """Match answers to requests until the broker hangs up, sends nonsense or `close` was called."""
        reader = AnswerReader()
        idle_ms = self._config.connections_max_idle_ms
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
        pending.body = frame[_response_header_size(frame, pending.header_version) :]
        self._pending.popleft()
        pending.arrived.set()

    # --- the end ---

    def close(self, reason: str = "the connection is closed") -> None:
        """End the connection; what is under way fails with `reason`."""
        if self.is_closed:
            return
        self.is_closed = True
        self._close_reason = reason
        self._fail_pending()
        self._lifetime.cancel()

    def _fail_pending(self) -> None:
        self.is_closed = True
        while self._pending:
            self._pending.popleft().arrived.set()


def api_key_of(message: Message) -> ApiKey:
    """The API that a request belongs to: each has a module of its own that is named after it."""
    return _api_key_of_module(type(message).__module__)


@cache
def _api_key_of_module(module: str) -> ApiKey:
    return ApiKey[module.rpartition(".")[2].upper()]


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
