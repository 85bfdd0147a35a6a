"""One HTTP/1.1 connection: requests in turn, each with a bounded head and body, and their answers.

h11 has the rules of RFC 9112: framing, keep-alive, chunked bodies, what is malformed.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from http import HTTPStatus
from itertools import chain
from typing import TYPE_CHECKING

import h11
import trio

from .messages import BadRequestError, HttpHandler, HttpRequest, HttpResponse, plain_text

if TYPE_CHECKING:
    from .limits import HttpLimits

logger = logging.getLogger(__name__)

PIECE_BYTES = 65536
"""Bytes that are received or sent at a time."""
LINGER_BYTES = 1048576
"""Most bytes that are read and dropped behind a refused request, so that the client reads the refusal."""


class _RefusedError(Exception):
    """An error for a request that this connection refuses, with the answer."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.response = plain_text(status, text)


class HttpConnection:
    """A connection of one client, from its first request to its end."""

    def __init__(self, stream: trio.SocketStream, limits: HttpLimits) -> None:
        self._stream = stream
        self._limits = limits
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.max_header_bytes)
        self.is_answering = False
        """Whether a request has arrived whose answer is not yet sent."""

    async def run(self, handler: HttpHandler) -> None:
        """Answer requests until the client ends the connection, is too slow, or sends what cannot be read.

        Raises trio.BrokenResourceError if the client disconnects within an exchange.
        """
        while True:
            try:
                request = await self._receive_request()
                if request is None:
                    return
                self.is_answering = True
                response = await _answer(handler, request)
                is_head = request.method == "HEAD"
            except _RefusedError as refused:
                await self._send(refused.response, is_head=False)
                await self._linger()
                return
            if not await self._send(response, is_head=is_head):
                return
            self.is_answering = False
            if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
                return
            self._http.start_next_cycle()

    async def _receive_request(self) -> HttpRequest | None:
        """Return the next request; None if the client closes or sends none in time.

        Raises _RefusedError for a malformed or oversized request.
        """
        with trio.move_on_after(self._limits.timeout_s):
            try:
                head = await self._next_event()
                if not isinstance(head, h11.Request):
                    return None
                headers = self._headers(head)
                body = bytearray()
                while isinstance(event := await self._next_event(), h11.Data):
                    body += event.data
                    if len(body) > self._limits.max_body_bytes:
                        text = f"the body is larger than gregor.http.max.body.bytes={self._limits.max_body_bytes}"
                        raise _RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)
                return HttpRequest(head.method.decode(), head.target.decode(), headers, bytes(body))
            except h11.RemoteProtocolError as malformed:
                raise _RefusedError(HTTPStatus(malformed.error_status_hint), str(malformed)) from None
        return None

    def _headers(self, head: h11.Request) -> dict[str, str]:
        """Return the headers by lower-case name. Raises _RefusedError if there are too many.

        h11 limits only a head that is not yet complete; one that arrives at once may be larger.
        """
        if sum(map(len, chain((head.target,), *head.headers))) > self._limits.max_header_bytes:
            text = f"the headers are larger than gregor.http.max.header.bytes={self._limits.max_header_bytes}"
            raise _RefusedError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, text)
        headers: dict[str, str] = {}
        for name, value in head.headers:
            key, text = name.decode("ascii"), value.decode("latin-1")
            headers[key] = f"{headers[key]}, {text}" if key in headers else text
        return headers

    async def _next_event(self) -> object:
        while True:
            event = self._http.next_event()
            if event is not h11.NEED_DATA:
                return event
            if self._http.they_are_waiting_for_100_continue:
                await self._stream.send_all(
                    self._http.send(h11.InformationalResponse(status_code=100, headers=[])) or b""
                )
            self._http.receive_data(await self._stream.receive_some(PIECE_BYTES))

    async def _send(self, response: HttpResponse, *, is_head: bool) -> bool:
        """Send a response; return False if the connection must end, as the client is too slow or the body fails."""
        body = response.body
        headers = {"Content-Type": response.content_type, **response.headers}
        if isinstance(body, bytes):
            headers["Content-Length"] = str(len(body))
        head = h11.Response(
            status_code=response.status.value, reason=response.status.phrase.encode(), headers=list(headers.items())
        )
        async with aclosing(_pieces(body) if isinstance(body, bytes) else body) as pieces:
            if not await self._send_event(head):
                return False
            return await (self._send_event(h11.EndOfMessage()) if is_head else self._send_pieces(pieces))

    async def _send_pieces(self, pieces: AsyncGenerator[bytes, None]) -> bool:
        while True:
            try:
                piece = await anext(pieces, None)
            except Exception:
                logger.exception("an HTTP answer failed after its beginning was sent")
                return False
            if piece is None:
                return await self._send_event(h11.EndOfMessage())
            if not await self._send_event(h11.Data(data=piece)):
                return False

    async def _send_event(self, event: h11.Event) -> bool:
        data = self._http.send(event)
        if not data:
            return True
        with trio.move_on_after(self._limits.timeout_s) as in_time:
            await self._stream.send_all(data)
        return not in_time.cancelled_caught

    async def _linger(self) -> None:
        """Drop what the client still sends, within limits: a close with unread bytes would make it lose the answer."""
        with trio.move_on_after(1):
            await self._stream.send_eof()
            dropped = 0
            while dropped < LINGER_BYTES and (data := await self._stream.receive_some(PIECE_BYTES)):
                dropped += len(data)


async def _answer(handler: HttpHandler, request: HttpRequest) -> HttpResponse:
    """Return the handler's response, or one about its failure."""
    try:
        return await handler(request)
    except BadRequestError as bad:
        return plain_text(HTTPStatus.BAD_REQUEST, str(bad))
    except Exception:
        logger.exception("answering %s %.200s failed", request.method, request.target)
        return plain_text(HTTPStatus.INTERNAL_SERVER_ERROR, "the broker failed to answer; its log has the reason")


async def _pieces(body: bytes) -> AsyncGenerator[bytes, None]:
    for start in range(0, len(body), PIECE_BYTES):
        yield body[start : start + PIECE_BYTES]
