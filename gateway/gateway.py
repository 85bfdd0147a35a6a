"""The gateway as a whole: its parts, the order in which they start, and how they stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import trio

from ..broker.config import BrokerConfig
from ..broker.config.listeners import Endpoint, parse_endpoints, security_protocol
from ..broker.conversion.conversion_pool import ConversionPool
from ..broker.quotas.connection_rates import ConnectionRates
from ..broker.server.readiness import Readiness
from ..broker.server.server import Server
from ..broker.server.socket_options import socket_options
from ..storage.clock import Clock, SystemClock
from .addresses import addresses_of, endpoints_of
from .checked_settings import check_settings
from .fetching.buffer_memory import BufferMemory
from .responder import Responder
from .sessions import Sessions
from .upstream import Upstream

if TYPE_CHECKING:
    from ..broker.authentication.credential_sources import CredentialSources
    from ..broker.authentication.listener_guard import ListenerGuard
    from ..broker.monitoring.pages import MetricPages
    from ..broker.zookeeper.listener import ZooKeeperListener
    from ..protocol.messages.cluster_metadata_records import UserScramCredentialRecord

READ_COMMITTED = "read_committed"
PLAINTEXT = "PLAINTEXT"


class NoUsers:
    """Users without SCRAM credentials: a gateway stores none, and passes SCRAM through instead."""

    def scram_credentials(self) -> Mapping[tuple[str, int], UserScramCredentialRecord]:
        """Return no credentials."""
        return {}


class Gateway:
    """A gateway that the constructor assembles and that `run` keeps running."""

    def __init__(self, config: BrokerConfig, clock: Clock | None = None) -> None:
        """Assemble the gateway. Raises ConfigError."""
        self.config = config
        clock = clock or SystemClock()
        self._readiness = Readiness(config.gregor_network_busy_poll_max_us)
        self._addresses = addresses_of(config)
        self._endpoints = endpoints_of(config, self._addresses)
        check_settings(config, self._endpoints)
        self.upstream = Upstream(config, self._readiness)
        self.sessions = Sessions(
            clock, config.gregor_client_census_max_clients, self.upstream, self._addresses.bound_node
        )
        self.memory = BufferMemory(config.gregor_gateway_buffer_memory)
        self._responder = Responder(
            self.sessions,
            self.upstream,
            self._addresses,
            ConversionPool.of(config),
            self.memory,
            is_read_committed=config.gregor_gateway_isolation_level == READ_COMMITTED,
            codec_threads=config.gregor_message_codec_threads,
        )
        self._connection_rates = ConnectionRates(config, clock)
        self._credentials: CredentialSources | None = None
        self._stop = trio.Event()
        self.listening: list[Endpoint] = []
        """The addresses at which connections are accepted; empty before the listeners are open."""
        self.metrics_address: Endpoint | None = None
        """The address of the metrics pages; None without `gregor.metrics.listener`."""
        self.is_ready = False
        """Whether clients are served."""

    async def run(self, started: Callable[[], None]) -> None:
        """Serve until `stop`, and call ``started`` once connections are accepted. Raises ListenerError."""
        server = Server(
            self._endpoints,
            self._responder,
            self.sessions,
            self.config,
            throttle=self._connection_rates,
            options=socket_options(self.config),
            drain_s=self.config.gregor_shutdown_timeout_ms / 1000,
            guards=self._open_guards(),
            readiness=self._readiness,
        )
        self.listening = server.bound
        pages = self._open_pages(server)
        zookeeper: ZooKeeperListener | None = None
        try:
            zookeeper = self._open_zookeeper()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._readiness.run)
                if self._credentials is not None:
                    nursery.start_soon(self._credentials.key_reader.run)
                await nursery.start(self.upstream.run)
                if pages is not None:
                    nursery.start_soon(pages.run)
                if zookeeper is not None:
                    nursery.start_soon(self._serve_zookeeper, zookeeper)
                self.is_ready = True
                started()
                await server.run(self._stop)
                nursery.cancel_scope.cancel()
        finally:
            if zookeeper is not None:
                zookeeper.close()
            server.close()

    def stop(self) -> None:
        """Make `run` end: accept no new connections, and finish the requests in flight."""
        self.is_ready = False
        self._stop.set()

    def _open_guards(self) -> Mapping[str, ListenerGuard] | None:
        """Return the guards of the listeners, None if all are PLAINTEXT. Raises ListenerError."""
        names = {endpoint.name for endpoint in parse_endpoints("listeners", self.config.listeners)}
        protocols = {name: security_protocol(name, self.config.security_protocols) for name in names}
        if set(protocols.values()) == {PLAINTEXT}:
            return None
        # A gateway without secured listeners does not load these modules at the start.
        from ..broker.authentication.credential_sources import CredentialSources
        from ..broker.authentication.listener_guards import ListenerGuards

        self._credentials = CredentialSources(NoUsers())
        return ListenerGuards(self.config, self._credentials).open(protocols)

    def _open_pages(self, server: Server) -> MetricPages | None:
        address = self.config.gregor_metrics_listener
        if not address:
            return None
        # A gateway without a metrics listener does not load the listener's modules at the start.
        from ..broker.http.limits import HttpLimits
        from ..broker.monitoring.pages import MetricPages
        from .metrics import gateway_families

        families = partial(gateway_families, self.sessions, server.activity, self.upstream, self.memory)
        pages = MetricPages(address, HttpLimits.of(self.config), families, lambda: bool(self.upstream.brokers))
        self.metrics_address = pages.bound
        return pages

    def _open_zookeeper(self) -> ZooKeeperListener | None:
        if not self.config.gregor_zookeeper_listeners:
            return None
        # Few gateways need these modules.
        from ..broker.zookeeper.listener import ZooKeeperListener

        return ZooKeeperListener(self.config)

    async def _serve_zookeeper(self, listener: ZooKeeperListener) -> None:
        from ..broker.zookeeper.kafka_requests import plaintext_endpoint
        from .zookeeper import UpstreamCluster

        endpoint = plaintext_endpoint(self.listening, self.config)
        cluster = UpstreamCluster(self._responder, self.sessions, self._addresses, endpoint, self.config)
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(cluster.run)
                nursery.start_soon(listener.run, cluster)
        finally:
            cluster.close()
