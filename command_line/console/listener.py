"""The console as a whole: its listener, its connections to the cluster, and its pages."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from http import HTTPStatus
from ipaddress import ip_address
from typing import TYPE_CHECKING

import trio

from ... import __version__
from ...broker.config.listeners import ListenerError
from ...broker.http.listener import HttpListener, on_loopback
from ...broker.http.messages import HttpRequest, HttpResponse, plain_text
from ...client.admin import Admin
from ...client.config import AdminConfig
from ...client.errors import ClientError
from ..asking import UsageError, read_client_properties
from .avro_schemas import AvroSchemas
from .client_pages import add_client_pages
from .fault_pages import add_fault_pages
from .group_pages import add_group_pages
from .history import History
from .overview_pages import add_overview_pages
from .produce_pages import add_produce_pages
from .record_pages import add_record_pages
from .records import RecordReader
from .settings import KEY, ConsoleSettings, ShownCluster
from .site import Site
from .sources import Sources
from .topic_pages import add_topic_pages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ...broker.app.lifetime import BrokerLifetime

logger = logging.getLogger(__name__)

LOOPBACK = "localhost"
TIMEOUT_MS = 10_000
"""Longest wait of a page for the cluster."""
ANSWER_OVERHEAD_BYTES = 1 << 20
"""Bytes of an answer with records, besides one batch."""


class Console:
    """A console, in the process of a broker or by itself."""

    def __init__(self, settings: ConsoleSettings) -> None:
        """Open the listener. Raises ListenerError, also for a file of client configurations that cannot be used."""
        self._settings = settings
        try:
            self._properties = read_client_properties(settings.client_config)
            AdminConfig.from_properties(self._properties)
        except (UsageError, ClientError) as error:
            raise ListenerError(f"gregor.console.client.config: {error}") from None
        self._site: Site | None = None
        self._opening = trio.Lock()
        self._lifetime: BrokerLifetime | None = None
        self._history: History | None = None
        addresses = [on_loopback(KEY, address) for address in settings.addresses]
        self._listener = HttpListener(KEY, addresses, self._answer, settings.limits, names=settings.hosts)
        self.addresses = [str(endpoint) for endpoint in self._listener.bound]
        """The addresses of the pages, with their actual ports."""

    async def run(self, lifetime: BrokerLifetime) -> None:
        """Show the broker of this process until cancelled; before it serves clients, answer with status 503."""
        self._lifetime = lifetime
        self._history = History(lifetime)
        self._say_where()
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(self._history.run)
            await self._listener.run()

    async def run_for(self, cluster: ShownCluster) -> None:
        """Show a cluster until cancelled. Raises ConfigError for a wrong client configuration."""
        self._say_where()
        async with self._opened(cluster) as self._site:
            await self._listener.run()

    def close(self) -> None:
        """Close the listening sockets, if they have not been."""
        self._listener.close()

    def _say_where(self) -> None:
        for endpoint in self._listener.bound:
            logger.info("console at %s", endpoint)
            if not _is_loopback(endpoint.host):
                logger.warning("the console at %s asks for no password and may be reached from other hosts", endpoint)

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        if self._lifetime is not None and not self._lifetime.is_ready:
            return plain_text(HTTPStatus.SERVICE_UNAVAILABLE, "the broker does not serve clients yet: try again")
        async with self._opening:
            if self._site is None:
                # The address of the broker's listener is known only now.
                self._site = await self._nursery.start(self._open_for_broker)
        return await self._site.answer(request)

    async def _open_for_broker(self, *, task_status: trio.TaskStatus[Site]) -> None:
        """Keep the connections to the broker of this process open until cancelled."""
        assert self._lifetime is not None
        cluster = ShownCluster.of_broker(self._lifetime.broker.services, self._properties)
        async with self._opened(cluster) as site:
            task_status.started(site)
            await trio.sleep_forever()

    @asynccontextmanager
    async def _opened(self, cluster: ShownCluster) -> AsyncIterator[Site]:
        """Yield the site, with connections to the cluster that end with the block."""
        servers, most_bytes = cluster.bootstrap_servers, self._settings.max_batch_bytes
        properties = {
            "default.api.timeout.ms": TIMEOUT_MS,
            "request.timeout.ms": TIMEOUT_MS,
            **self._properties,
            **cluster.client_properties,
        }
        limit_bytes = most_bytes + ANSWER_OVERHEAD_BYTES
        async with (
            Admin(servers, **properties) as admin,
            Admin(servers, **properties, max_answer_bytes=limit_bytes) as reading,
        ):
            sources = Sources(
                admin=admin,
                records=RecordReader(reading, most_bytes),
                schemas=AvroSchemas(self._settings.schema_dir),
                lifetime=self._lifetime,
                history=self._history,
            )
            yield _site(sources, self._settings, servers)


def _site(sources: Sources, settings: ConsoleSettings, bootstrap_servers: str) -> Site:
    site = Site(read_only=settings.read_only, shared={"version": __version__, "bootstrap_servers": bootstrap_servers})
    for add_pages in (
        add_overview_pages,
        add_topic_pages,
        add_record_pages,
        add_produce_pages,
        add_group_pages,
        add_client_pages,
        add_fault_pages,
    ):
        add_pages(site, sources)
    return site


def _is_loopback(host: str) -> bool:
    try:
        return host == LOOPBACK or ip_address(host).is_loopback
    except ValueError:
        return False
