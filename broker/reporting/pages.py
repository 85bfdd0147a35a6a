"""The pages of ``gregor.metrics.listener``: /metrics for Prometheus, /healthz and /readyz for probes."""

from __future__ import annotations

import logging
from http import HTTPStatus

import trio

from ..api.services import Services
from ..config.listeners import Endpoint, ListenerError, SocketOptions, open_sockets, parse_endpoints
from .exposition import CONTENT_TYPE, exposition
from .http_listener import Page, serve_pages
from .metric_families import broker_families

logger = logging.getLogger(__name__)

KEY = "gregor.metrics.listener"
BACKLOG = 16


class Monitoring:
    """A metrics listener of one broker."""

    def __init__(self, services: Services, address: str) -> None:
        """Open the listener at ``address``, ``http://host:port``. Raises ListenerError."""
        self._services = services
        endpoints = parse_endpoints(KEY, [address])
        if endpoints[0].name != "HTTP":
            raise ListenerError(f"{KEY}: {address!r} is not of the form http://host:port")
        self._sockets = open_sockets(endpoints[0], SocketOptions(backlog=BACKLOG))
        self.bound = Endpoint("http", endpoints[0].host, self._sockets[0].getsockname()[1])
        """The listener's address, with its actual port."""

    async def run(self) -> None:
        """Answer requests until cancelled."""
        logger.info("metrics at %s/metrics", self.bound)
        listeners = [trio.SocketListener(trio.socket.from_stdlib_socket(opened)) for opened in self._sockets]
        await serve_pages(listeners, {"/metrics": self._metrics, "/healthz": self._health, "/readyz": self._readiness})

    def close(self) -> None:
        """Close the listening sockets, if `run` has not."""
        for opened in self._sockets:
            opened.close()

    async def _metrics(self) -> Page:
        pieces = []
        for piece in exposition(broker_families(self._services)):
            pieces.append(piece)
            await trio.lowlevel.checkpoint()
        return Page(HTTPStatus.OK, "".join(pieces).encode(), CONTENT_TYPE)

    async def _health(self) -> Page:
        return Page(HTTPStatus.OK, b"ok\n")

    async def _readiness(self) -> Page:
        if self._services.serving.is_ready:
            return Page(HTTPStatus.OK, b"ready\n")
        return Page(HTTPStatus.SERVICE_UNAVAILABLE, b"not ready\n")
