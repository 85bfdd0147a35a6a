"""A follower's connection to its leader: one request at a time, sent and awaited by the fetching task.

Replication is a sequence of round trips to the leader, of which task switches are a large part; a connection that many
tasks share would need two of them for each request.
"""

from __future__ import annotations

import socket
from struct import Struct
from typing import TypeVar

import trio

from ....client.wire.connection import api_key_of
from ....protocol.apis import request_header_version, response_header_version
from ....protocol.codec import decode, encode
from ....protocol.errors import BrokerError, DecodeError, ErrorCode
from ....protocol.framing import LENGTH, FrameReader
from ....protocol.messages.header import RequestHeader
from ....protocol.schema import Message

Response = TypeVar("Response", bound=Message)
Address = tuple[str, int]

CORRELATION_ID = Struct(">i")
CORRELATION_ID_AT = 4
"""The position of the correlation id, after the API's key and version."""
MAX_ANSWER_BYTES = 2**31 - 1
READ_BYTES = 256 * 1024


class GivenUpError(Exception):
    """An error for a request that `FetchLane.give_up` has cancelled."""


class FetchLane:
    """A connection, opened when it is needed and opened again after any failure."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._socket: socket.socket | None = None
        self._address: Address | None = None
        self._reader = FrameReader(MAX_ANSWER_BYTES)
        self._space = memoryview(bytearray(READ_BYTES))
        """The buffer for received bytes, kept because allocating it for each answer would cost more than all else."""
        self._correlation_id = 0
        self._headers: dict[tuple[type[Message], int], bytearray] = {}
        self._asking = trio.CancelScope()
        """The cancel scope of the request in progress."""
        self._is_given_up = False

    async def ask(
        self, address: Address, request: Message, response: type[Response], *, version: int, timeout_s: float
    ) -> Response:
        """Send a request and wait for its answer; a cancelled wait closes the connection.

        Raises BrokerError: BROKER_NOT_AVAILABLE if ``address`` cannot be reached, NETWORK_EXCEPTION if the connection
        is closed, the answer is malformed or the timeout has passed; GivenUpError.
        """
        answer: Response | None = None
        self._is_given_up = False
        try:
            with trio.CancelScope(deadline=trio.current_time() + timeout_s) as self._asking:
                connected = await self._connected(address)
                await _send(connected, self._frame(request, version))
                answer = self._decoded(await self._next_frame(connected), request, response, version)
        except (OSError, DecodeError) as error:
            raise BrokerError(ErrorCode.NETWORK_EXCEPTION, str(error)) from None
        finally:
            if answer is None:
                self.close()
        if answer is None:
            if self._is_given_up:
                raise GivenUpError
            raise BrokerError(ErrorCode.NETWORK_EXCEPTION, f"no answer in {timeout_s} s")
        return answer

    def give_up(self) -> None:
        """Cancel the request in progress, if any, and close its connection."""
        self._is_given_up = True
        self._asking.cancel()

    def close(self) -> None:
        """Close the connection, if it is open."""
        if self._socket is not None:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()
            self._socket = None

    async def _connected(self, address: Address) -> socket.socket:
        if self._socket is None or self._address != address:
            self.close()
            try:
                stream = await trio.open_tcp_stream(*address)
            except OSError as error:
                raise BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, f"{address[0]}:{address[1]}: {error}") from None
            self._socket = socket.socket(fileno=stream.socket.detach())
            self._socket.setblocking(False)
            self._address = address
            self._reader = FrameReader(MAX_ANSWER_BYTES)
        return self._socket

    def _frame(self, request: Message, version: int) -> bytes:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        header = self._headers.get((type(request), version))
        if header is None:
            header = self._headers[type(request), version] = self._header(request, version)
        CORRELATION_ID.pack_into(header, CORRELATION_ID_AT, self._correlation_id)
        body = encode(request, version)
        return LENGTH.pack(len(header) + len(body)) + header + body

    def _header(self, request: Message, version: int) -> bytearray:
        key = api_key_of(request)
        header = RequestHeader(request_api_key=key, request_api_version=version, client_id=self._client_id)
        return bytearray(encode(header, request_header_version(key, version)))

    async def _next_frame(self, connected: socket.socket) -> memoryview:
        # No answer arrives before the first wait, but a long one arrives faster than it is read.
        has_more = False
        while (frame := self._reader.next_frame()) is None:
            if not has_more:
                await trio.lowlevel.wait_readable(connected)
            try:
                count = connected.recv_into(self._space)
            except BlockingIOError:
                has_more = False
                continue
            if not count:
                raise ConnectionResetError("the leader hung up")
            has_more = count == READ_BYTES
            self._reader.feed(self._space[:count])
        return frame

    def _decoded(self, frame: memoryview, request: Message, response: type[Response], version: int) -> Response:
        begins_at = CORRELATION_ID.size + response_header_version(api_key_of(request), version)
        if len(frame) < begins_at or any(frame[CORRELATION_ID.size : begins_at]):
            raise DecodeError("no header without tagged fields")
        (correlation_id,) = CORRELATION_ID.unpack_from(frame)
        if correlation_id != self._correlation_id:
            raise DecodeError(f"an answer to request {correlation_id} instead of {self._correlation_id}")
        return decode(response, frame[begins_at:], version)


async def _send(connected: socket.socket, frame: bytes) -> None:
    rest = memoryview(frame)
    while rest:
        try:
            rest = rest[connected.send(rest) :]
        except BlockingIOError:
            await trio.lowlevel.wait_writable(connected)
