"""A request in flight, and its answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import trio

from ...protocol.apis import AnyApiKey
from ...protocol.conversation import InFlightRequest
from ...protocol.errors import DecodeError
from ...protocol.schema import Message
from ..errors import ConnectionLostError

Response = TypeVar("Response", bound=Message)


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

    __slots__ = ("_arrived", "_connection", "_on_arrival", "_request", "answer_class", "deadline", "timeout_ms")

    def __init__(
        self,
        connection: AnsweringConnection,
        request: InFlightRequest,
        answer_class: type[Response],
        timeout_ms: int,
        on_arrival: Callable[[PendingAnswer[Any]], None] | None,
        now: float,
    ) -> None:
        self._connection = connection
        self._request = request
        self._on_arrival = on_arrival
        self._arrived: trio.Event | None = trio.Event() if on_arrival is None else None
        self.answer_class = answer_class
        self.timeout_ms = timeout_ms
        self.deadline = now + timeout_ms / 1000

    @property
    def key(self) -> AnyApiKey:
        """The API of the request."""
        return self._request.key

    @property
    def size_bytes(self) -> int:
        """The size of the request in bytes, with its header and length."""
        return self._request.size_bytes

    @property
    def version(self) -> int:
        """The version of the request and its answer."""
        return self._request.version

    @property
    def body(self) -> memoryview | None:
        """The answer without its header; None before the answer has arrived, or if none will arrive."""
        return self._request.body

    def finish(self) -> None:
        """Wake the waiting task or call the callback, as the answer has arrived or the connection has ended."""
        if self._arrived is not None:
            self._arrived.set()
        elif self._on_arrival is not None:
            self._on_arrival(self)

    async def arrived(self) -> memoryview:
        """Wait for the answer and return its body, without the header. Raises ConnectionLostError if none arrives."""
        assert self._arrived is not None, "a request with a callback cannot be awaited"
        await self._arrived.wait()
        return self._body()

    async def wait(self) -> Response:
        """Wait for the answer and decode it. Raises the errors of `result`."""
        await self.arrived()
        return self.result()

    def result(self) -> Response:
        """Return the decoded answer, once it has arrived. Raises ConnectionLostError if it has not, or is malformed."""
        self._body()
        try:
            return self._request.decode(self.answer_class)
        except DecodeError as fault:
            connection = self._connection
            connection.close(f"malformed {self.key.name} answer: {fault}")
            raise ConnectionLostError(f"{connection.node}: {connection.close_reason}") from fault

    def _body(self) -> memoryview:
        if self._request.body is None:
            raise ConnectionLostError(f"{self._connection.node}: {self._connection.close_reason}")
        return self._request.body
