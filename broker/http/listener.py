"""A listener for HTTP: its sockets, and the connections that it has at a time."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import trio

from ..config.listeners import Endpoint, ListenerError, SocketOptions, open_sockets, parse_endpoints
from .connection import HttpConnection
from .hosts import LOOPBACK_NAME, refusal

if TYPE_CHECKING:
    import socket

    from .limits import HttpLimits
    from .messages import HttpHandler, HttpRequest, HttpResponse

logger = logging.getLogger(__name__)

BACKLOG = 16


class HttpListener:
    """A listener that answers HTTP requests with one handler."""

    def __init__(
        self,
        key: str,
        addresses: Sequence[str],
        handler: HttpHandler,
        limits: HttpLimits,
        *,
        names: Collection[str] | None = None,
    ) -> None:
        """Open sockets at ``addresses``, each ``http://host:port``, the value of the configuration ``key``.

        ``names`` are the host names of a listener that refuses requests of other sites' pages (`hosts.refusal`); None
        is for a listener whose pages change nothing and may be read by all sites.
        Raises ListenerError.
        """
        self._key = key
        self._handler = handler if names is None else self._guarded(handler, frozenset(map(str.lower, names)))
        self._limits = limits
        self._sockets: list[socket.socket] = []
        self.bound: list[Endpoint] = []
        """The addresses with their actual ports, in the order given."""
        try:
            for address in addresses:
                self._open(address)
        except ListenerError:
            self.close()
            raise
        self._connections: dict[trio.CancelScope, HttpConnection] = {}
        """The connections, the oldest first, each with the scope that ends it."""

    def _open(self, address: str) -> None:
        (endpoint,) = parse_endpoints(self._key, [address])
        if endpoint.name != "HTTP":
            raise ListenerError(f"{self._key}: {address!r} is not of the form http://host:port")
        sockets = open_sockets(endpoint, SocketOptions(backlog=BACKLOG))
        self._sockets += sockets
        self.bound.append(Endpoint("http", endpoint.host, sockets[0].getsockname()[1]))

    async def run(self) -> None:
        """Answer requests until cancelled."""
        listeners = [trio.SocketListener(trio.socket.from_stdlib_socket(opened)) for opened in self._sockets]
        await trio.serve_listeners(self._serve, listeners)

    def close(self) -> None:
        """Close the sockets, if `run` has not."""
        for opened in self._sockets:
            opened.close()

    @staticmethod
    def _guarded(handler: HttpHandler, names: frozenset[str]) -> HttpHandler:
        """Return a handler that answers only what the listener's own pages and programs ask."""

        async def guarded(request: HttpRequest) -> HttpResponse:
            return refusal(request, names) or await handler(request)

        return guarded

    async def _serve(self, stream: trio.SocketStream) -> None:
        if len(self._connections) >= self._limits.max_connections:
            self._disconnect_one()
        connection = HttpConnection(stream, self._limits)
        with trio.CancelScope() as scope:
            self._connections[scope] = connection
            async with stream:
                try:
                    await connection.run(self._handler)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    logger.debug("a client of %s has disconnected", self._key)
        self._connections.pop(scope, None)

    def _disconnect_one(self) -> None:
        """Disconnect the oldest connection without a request, else the oldest of all."""
        scope = min(self._connections, key=lambda scope: self._connections[scope].is_answering)
        del self._connections[scope]
        scope.cancel()


def on_loopback(key: str, address: str) -> str:
    """Return an address of the configuration `key`, with localhost as its host if it has none.

    Raises ListenerError for an address of another form.
    """
    (endpoint,) = parse_endpoints(key, [address])
    return address if endpoint.host else str(Endpoint(endpoint.name, LOOPBACK_NAME, endpoint.port))
