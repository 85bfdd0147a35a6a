"""A request in flight, and its answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import trio

from ...protocol.apis import AnyApiKey, response_header_version
from ...protocol.codec import decode
from ...protocol.errors import DecodeError, ErrorCode
from ...protocol.schema import Message
from ..errors import ConnectionLostError

Response = TypeVar("Response", bound=Message)

CORRELATION_ID_SIZE = 4


class AnsweringConnection(Protocol):
    """A connection that a request was sent over, as the pending answer uses it; see `connection.Connection`."""

    @property
    def node(self) -> object:
        """The address of the broker, for error messages."""

    @property
    def close_reason(self) -> str:
        """Why the connection was closed."""

    def close(self, reason: str) -> None:
        """Close the connection."""


class PendingAnswer(Generic[Response]):
    """The pending answer of one request, made by `Connection.submit`.

    `deadline` is on trio's clock; `on_arrival` is called once, also if the connection ends without the answer.
    """

    __slots__ = (
        "_arrived",
        "_connection",
        "_on_arrival",
        "answer_class",
        "body",
        "correlation_id",
        "deadline",
        "key",
        "timeout_ms",
        "version",
    )

    def __init__(
        self,
        connection: AnsweringConnection,
        key: AnyApiKey,
        version: int,
        answer_class: type[Response],
        timeout_ms: int,
        on_arrival: Callable[[PendingAnswer[Any]], None] | None,
    ) -> None:
        self._connection = connection
        self._on_arrival = on_arrival
        self._arrived: trio.Event | None = trio.Event() if on_arrival is None else None
        self.key = key
        self.version = version
        self.answer_class = answer_class
        self.timeout_ms = timeout_ms
        self.deadline = trio.current_time() + timeout_ms / 1000
        self.correlation_id = -1
        self.body: memoryview | None = None

    def take(self, frame: memoryview) -> None:
        """Accept the frame that answers this request. Raises DecodeError if the frame answers another request."""
        correlation_id = int.from_bytes(frame[:CORRELATION_ID_SIZE], "big")
        if correlation_id != self.correlation_id:
            raise DecodeError(f"answer {correlation_id} instead of {self.correlation_id}")
        self.body = frame[_header_size(frame, response_header_version(self.key, self.version)) :]

    def finish(self) -> None:
        """Wake the waiting task or call the callback: `body` has arrived, or the connection has ended without it."""
        if self._arrived is not None:
            self._arrived.set()
        elif self._on_arrival is not None:
            self._on_arrival(self)

    async def arrived(self) -> None:
        """Wait until the answer has arrived, or the connection has ended without it."""
        assert self._arrived is not None, "a request with a callback cannot be awaited"
        await self._arrived.wait()

    async def wait(self) -> Response:
        """Wait for the answer and decode it. Raises the errors of `result`."""
        await self.arrived()
        return self.result()

    def begins_with(self, code: ErrorCode) -> bool:
        """Return whether the answer begins with that error code, whatever its layout after the code."""
        return self.body is not None and self.body[:2] == int(code).to_bytes(2, "big")

    def result(self) -> Response:
        """Return the decoded answer, once it has arrived. Raises ConnectionLostError if it has not, or is malformed."""
        connection = self._connection
        if self.body is None:
            raise ConnectionLostError(f"{connection.node}: {connection.close_reason}")
        try:
            return decode(self.answer_class, self.body, self.version)
        except DecodeError as fault:
            connection.close(f"malformed {self.key.name} answer: {fault}")
            raise ConnectionLostError(f"{connection.node}: {connection.close_reason}") from fault


def _header_size(frame: memoryview, header_version: int) -> int:
    """Return the bytes of the response header: the correlation id and, from version 1 on, tagged fields that are
    skipped.
    """
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
