"""Log lines of a gateway about upstream brokers that do not answer: one for each outage, with the keys to change."""

from __future__ import annotations

import logging

import trio

from ..broker.config.gateway_keys import UPSTREAM_PREFIX
from ..broker.server.client_connection import UnanswerableError
from ..client.errors import AuthenticationFailedError

logger = logging.getLogger(__name__)

SILENCE_S = 1.0
"""The time without an answer after which the log says that the gateway still waits for one."""
CHECK_ADDRESS = f"Check gregor.gateway.upstream (--upstream HOST:PORT) and {UPSTREAM_PREFIX}security.protocol"
CHECK_SECURITY = f"Check {UPSTREAM_PREFIX}security.protocol, {UPSTREAM_PREFIX}sasl.* or {UPSTREAM_PREFIX}ssl.*"


class OutageError(UnanswerableError):
    """An error for a request during an outage; many clients connect again and again meanwhile."""

    log_level = logging.DEBUG


class Reachability:
    """A record of whether the upstream cluster answers, which logs each change."""

    def __init__(self, servers: str) -> None:
        """Begin before the first attempt to reach ``servers``, the value of gregor.gateway.upstream."""
        self._servers = servers
        self._is_answering = False
        self.is_reported = False
        """Whether the log says that no broker answers."""

    def answered(self) -> None:
        """Note an answer; the end of an outage is logged."""
        if self.is_reported:
            logger.info("%s: a broker answers", self._servers)
        self._is_answering, self.is_reported = True, False

    def failed(self, error: Exception) -> None:
        """Note an attempt without an answer; the first one of an outage is logged."""
        self._is_answering = False
        change = CHECK_SECURITY if isinstance(error, AuthenticationFailedError) else CHECK_ADDRESS
        self._report("%s. Clients are disconnected until a broker answers. %s", error, change)

    async def report_silence(self) -> None:
        """Log that the first attempt takes long, so that a wrong address is known before the attempt is given up."""
        await trio.sleep(SILENCE_S)
        if not self._is_answering:
            self._report("%s: no answer yet. Clients wait. %s", self._servers, CHECK_ADDRESS)

    def _report(self, text: str, *values: object) -> None:
        if not self.is_reported:
            self.is_reported = True
            logger.warning(text, *values)
