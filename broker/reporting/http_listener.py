"""A small HTTP listener for metrics and health pages: GET and HEAD, one request for each connection.

It needs no HTTP library: it reads no bodies, ignores headers, and is off by default.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple

import trio

logger = logging.getLogger(__name__)

HEAD_LIMIT_BYTES = 8192
PATIENCE_S = 10.0
"""Timeout of one request and its answer."""
PLAIN_TEXT = "text/plain; charset=utf-8"
MAX_CLIENTS = 16
"""Most clients at a time; a further one disconnects the oldest without a request, else the oldest of all."""


class Page(NamedTuple):
    """An answer for one path."""

    status: HTTPStatus
    body: bytes
    content_type: str = PLAIN_TEXT


Pages = Mapping[str, Callable[[], Awaitable[Page]]]
"""Functions that render pages, by path."""


async def serve_pages(listeners: list[trio.SocketListener], pages: Pages) -> None:
    """Answer requests until cancelled."""
    clients: dict[trio.CancelScope, bool] = {}
    """The connected clients, the oldest first, and whether each has sent its request."""

    async def serve(stream: trio.SocketStream) -> None:
        if len(clients) >= MAX_CLIENTS:
            gone = min(clients, key=clients.__getitem__)
            del clients[gone]
            gone.cancel()
        with trio.move_on_after(PATIENCE_S) as patience:
            clients[patience] = False
            async with stream:
                try:
                    head = await _request_head(stream)
                    if patience in clients:
                        clients[patience] = True
                    await _answer(head, stream, pages)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    logger.debug("a client of the metrics listener has disconnected")
                except Exception:
                    logger.exception("answering on the metrics listener failed")
        clients.pop(patience, None)

    await trio.serve_listeners(serve, listeners)


async def _answer(head: bytes, stream: trio.SocketStream, pages: Pages) -> None:
    if not head:
        return
    method, _, target = head.split(b"\r\n", 1)[0].decode("latin-1").rpartition(" ")[0].partition(" ")
    if method not in ("GET", "HEAD"):
        page = Page(HTTPStatus.METHOD_NOT_ALLOWED, b"only GET and HEAD\n")
    else:
        find = pages.get(target.partition("?")[0])
        page = Page(HTTPStatus.NOT_FOUND, _directory(pages)) if find is None else await find()
    await stream.send_all(_response_head(page) + (b"" if method == "HEAD" else page.body))


async def _request_head(stream: trio.SocketStream) -> bytes:
    """Read and return the request line and headers; they end early if the client closes or sends too much."""
    head = b""
    while b"\r\n\r\n" not in head and len(head) < HEAD_LIMIT_BYTES:
        data = await stream.receive_some(HEAD_LIMIT_BYTES)
        if not data:
            break
        head += data
    return head


def _response_head(page: Page) -> bytes:
    return (
        f"HTTP/1.1 {page.status.value} {page.status.phrase}\r\n"
        f"Content-Type: {page.content_type}\r\n"
        f"Content-Length: {len(page.body)}\r\n"
        "Connection: close\r\n\r\n"
    ).encode("latin-1")


def _directory(pages: Pages) -> bytes:
    return ("there are: " + " ".join(sorted(pages)) + "\n").encode()
