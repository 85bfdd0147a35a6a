"""Views of the objects that a connection uses: a transport of bytes, and a responder that answers requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from .client_connection import ClientConnection
from .outcome import Outcome
from .parts import Answer, Buffer
from .receive_buffer_cy import ReceiveBuffer


class Transport(Protocol):
    """A transport of bytes; `SocketTransport` is the one for plain sockets."""

    descriptor: int
    plain_descriptor: int
    has_ended: bool

    def receive_now(self, space: memoryview) -> int: ...
    def gather(self, data: Buffer) -> None: ...
    @property
    def is_full(self) -> bool: ...
    def flush_now(self) -> bool: ...
    async def flush(self) -> None: ...
    async def send(self, data: Buffer, *, before_wait: Callable[[], None] | None = None) -> None: ...
    async def send_file(self, descriptor: int, position: int, size_bytes: int) -> None: ...
    @property
    def is_plain(self) -> bool: ...
    def gathered_with(self, data: bytes) -> bytes: ...
    def forget_gathered(self) -> None: ...
    def enlarge_send_buffer(self, size_bytes: int) -> None: ...
    def close(self) -> None: ...


class PlainLane(Protocol):
    """A lane that answers the plain requests of a connection without an object for each of them."""

    def answer(self, buffer: ReceiveBuffer, client: ClientConnection) -> list[bytes]:
        """Answer the plain requests with which the buffer begins; return the answers, each with its length.

        The list is valid until the next call.
        """


class Responder(Protocol):
    """A responder that turns a request frame into an answer (`dispatch.Dispatcher`)."""

    @property
    def plain_lane(self) -> PlainLane | None:
        """The lane for requests that need no `answer`; None if all do."""

    def is_pipelined(self, frame: memoryview, client: ClientConnection) -> bool:
        """Return whether the request may be handled while earlier ones are pending, and later ones while it is."""

    def answer(self, frame: memoryview, client: ClientConnection) -> Outcome[Answer | None]:
        """Return the answer, None if the client expects none, a pending answer, or a coroutine for the answer.

        Raises UnanswerableError, DecodeError or ClientGoneError, as may the coroutine and the pending answer.
        """
