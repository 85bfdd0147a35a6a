"""The pages of ``gregor.metrics.listener``: /metrics for Prometheus, /healthz and /readyz for probes."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Iterable
from http import HTTPStatus

import trio

from ..http.limits import HttpLimits
from ..http.listener import HttpListener
from ..http.messages import HttpRequest, HttpResponse, plain_text
from .exposition import CONTENT_TYPE, exposition
from .metrics import Family

logger = logging.getLogger(__name__)

KEY = "gregor.metrics.listener"
METHODS = ("GET", "HEAD")


class MetricPages:
    """A metrics listener of one process."""

    def __init__(
        self,
        address: str,
        limits: HttpLimits,
        families: Callable[[], Iterable[Family]],
        is_ready: Callable[[], bool],
    ) -> None:
        """Open the listener at ``address``, ``http://host:port``. Raises ListenerError."""
        self._families = families
        self._is_ready = is_ready
        self._listener = HttpListener(KEY, [address], self._answer, limits)
        self._pages = {"/metrics": self._metrics, "/healthz": self._health, "/readyz": self._readiness}
        (self.bound,) = self._listener.bound
        """The listener's address, with its actual port."""

    async def run(self) -> None:
        """Answer requests until cancelled."""
        logger.info("metrics at %s/metrics", self.bound)
        await self._listener.run()

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        if request.method not in METHODS:
            return plain_text(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD")
        page = self._pages.get(request.path)
        if page is None:
            return plain_text(HTTPStatus.NOT_FOUND, f"there are: {' '.join(sorted(self._pages))}")
        return page()

    def _metrics(self) -> HttpResponse:
        return HttpResponse(HTTPStatus.OK, self._metric_lines(), CONTENT_TYPE)

    async def _metric_lines(self) -> AsyncGenerator[bytes, None]:
        for piece in exposition(self._families()):
            yield piece.encode()
            await trio.lowlevel.checkpoint()

    def _health(self) -> HttpResponse:
        return plain_text(HTTPStatus.OK, "ok")

    def _readiness(self) -> HttpResponse:
        if self._is_ready():
            return plain_text(HTTPStatus.OK, "ready")
        return plain_text(HTTPStatus.SERVICE_UNAVAILABLE, "not ready")
