"""The broker as a whole: its parts, the order in which the parts start, and how they stop."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

import trio

from ...protocol.internal_topics import GROUP_METADATA, TRANSACTION_STATE
from ...storage.clock import Clock, SystemClock
from ...storage.disk.log_directories import unusable
from ...storage.disk.log_directory import StorageUnavailableError
from ...storage.log_manager import LogManager
from ..api.contract import Api
from ..api.dispatch import Dispatcher
from ..api.services import Services
from ..api.table import APIS, with_transactions_v2
from ..authentication.credential_sources import CredentialSources
from ..authentication.delegation_tokens import DelegationTokens
from ..authentication.listener_guards import ListenerGuards
from ..config import BrokerConfig
from ..config.listeners import ListenerError, parse_counts, parse_endpoints, security_protocol
from ..config.roles import inter_broker_listener
from ..conversion.conversion_pool import ConversionPool
from ..coordinators.groups.deferred_coordinator import DeferredGroupCoordinator
from ..coordinators.internal_log.coordinator_log import CoordinatorLog
from ..coordinators.internal_log.led_partitions import LedPartitions, LedTopic
from ..coordinators.internal_log.topic_partitions import InternalTopicPartitions
from ..coordinators.transactions.coordinator import CoordinatorSettings, TransactionCoordinator
from ..coordinators.transactions.markers import PartitionMarkers
from ..metadata.changes import (
    AclsChanged,
    BrokerConfigChanged,
    FeaturesChanged,
    MetadataChange,
    QuotasChanged,
    TopicDeleted,
)
from ..metadata.features import has_transactions_v2
from ..metadata.producer_ids import first_id_after
from ..metadata.store import MetadataStore
from ..monitoring.metrics import Metrics
from ..node.lone_node import LoneNode
from ..quotas.connection_rates import ConnectionRates
from ..quotas.enforcement import ClientQuotas
from ..replicas.directories import Directories
from ..replicas.fetching.purgatory import Purgatory
from ..replicas.fetching.sessions import FetchSessionCache
from ..replicas.log_moves import LogMoves
from ..replicas.maintenance import compact_logs, maintain_logs
from ..replicas.partition_registry import PartitionRegistry
from ..replicas.replication.replicas import Replicas
from ..server.bulk_lane import BulkLane
from ..server.client_census import ClientCensus
from ..server.request_times import RequestTimes
from ..server.server import Server
from ..server.serving_state import ServingState
from ..server.socket_options import socket_options
from ..server.socket_rounds import SocketRounds
from .initial_topics import create_alone, create_among_others
from .loading_marker import marker_of
from .upkeep import keep_transactions, remove_expired_tokens

if TYPE_CHECKING:
    from ..authorization.standard_authorizer import StandardAuthorizer
    from ..faults.injection import FaultInjection
    from ..monitoring.pages import MetricPages
    from ..node.node import Node
    from ..zookeeper.listener import ZooKeeperListener

logger = logging.getLogger(__name__)


class Broker:
    """A broker that the constructor assembles and that `run` keeps running."""

    def __init__(self, config: BrokerConfig, clock: Clock | None = None) -> None:
        self.config = config
        self._clock = clock or SystemClock()
        self._faults = self._open_faults()
        self._connection_rates = ConnectionRates(config, self._clock)
        self._rounds = SocketRounds()
        metadata = MetadataStore(config, self._clock)
        partitions = PartitionRegistry(exists=metadata.has_partition)
        logs = self._new_logs()
        self._node = self._new_node(metadata, logs, partitions)
        self._replicas = Replicas(metadata, logs, partitions, self._node.replication)
        self.directories = Directories(logs, self._replicas)
        internal_topics = InternalTopicPartitions(metadata, partitions)
        groups = DeferredGroupCoordinator(config, self._clock, internal_topics, metadata)
        markers = PartitionMarkers(
            partitions,
            lambda index, producer, commits: groups.coordinator.transaction_ended(index, producer, is_commit=commits),
            self._clock,
        )
        self._transaction_log = CoordinatorLog(TRANSACTION_STATE, internal_topics, self._clock)
        self._transaction_partitions = LedPartitions(
            self._transaction_log,
            is_alone=config.roles.is_alone,
            begin_reading=lambda _: transactions,
            forget=lambda index: transactions.forget_partition(index),
        )
        transactions = TransactionCoordinator(
            self._transaction_log,
            self._node.new_markers(markers, lambda ended: transactions.markers_written(ended)),
            self._node.producer_ids.next,
            self._clock,
            CoordinatorSettings(config.transaction_max_timeout_ms, config.transactional_id_expiration_ms),
            self._transaction_partitions,
        )
        tokens = DelegationTokens(config, metadata, self._clock)
        self._guards = ListenerGuards(config, CredentialSources(metadata, tokens))
        self.services = Services(
            config=config,
            clock=self._clock,
            faults=self._faults,
            authorizer=self._new_authorizer(),
            metrics=Metrics(RequestTimes() if config.gregor_metrics_listener else None),
            clients=ClientCensus(self._clock, config.gregor_client_census_max_clients),
            quotas=ClientQuotas(config, self._clock),
            metadata=metadata,
            node=self._node,
            logs=logs,
            log_moves=LogMoves(logs, self._clock, self._node.log_moved),
            partitions=partitions,
            replicas=self._replicas,
            purgatory=Purgatory(self._rounds),
            fetch_sessions=FetchSessionCache(config.max_incremental_fetch_session_cache_slots),
            conversions=ConversionPool.of(config),
            validations=trio.CapacityLimiter(config.gregor_message_codec_threads),
            producer_ids=self._node.producer_ids,
            delegation_tokens=tokens,
            guards=self._guards,
            deferred_groups=groups,
            transactions=transactions,
            transaction_markers=markers,
            leader_throttle=self._node.leader_throttle,
            serving=ServingState(),
        )
        """The parts of this broker that handlers use."""
        self.dispatcher = self._new_dispatcher(APIS)
        self._node.serve(self.services, self._new_dispatcher)
        coordinators: dict[str, LedTopic] = {
            GROUP_METADATA: groups,
            TRANSACTION_STATE: self._transaction_partitions,
        }
        self._node.report_elections(self._replicas, coordinators)
        self._leaving = trio.Event()
        self._stop = trio.Event()
        self._server: Server | None = None
        self._zookeeper: ZooKeeperListener | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Open the logs, serve until `stop`, then close the logs; report started once connections are accepted.

        Raises ListenerError, StorageUnavailableError, BrokerError or ConfigError if the broker cannot start, and
        StorageUnavailableError if the broker cannot continue; the text of each error is one line for the operator.
        """
        self._server = server = self._open_listeners()
        if self._node.replication is not None:
            self._node.replication.watcher = server.readiness
        try:
            self._node.open_listener(self._connection_rates, socket_options(self.config), self._guards)
            self.services.logs.cluster_id = await self._node.find_cluster_id()
            self.services.logs.open_all()
            try:
                self._open_logs()
                await self._load_seed_data()
                monitoring = self._open_monitoring(server)
                self._zookeeper = self._open_zookeeper()
                async with trio.open_nursery() as upkeep:
                    upkeep.start_soon(self.directories.run)
                    upkeep.start_soon(self._guards.sources.key_reader.run)
                    await upkeep.start(self.services.deferred_groups.run)
                    upkeep.start_soon(maintain_logs, self.services.logs.maintenance, self.config, self._clock)
                    upkeep.start_soon(compact_logs, self.services.logs, self.config)
                    upkeep.start_soon(self.services.log_moves.run)
                    upkeep.start_soon(self._replicas.make_later_logs)
                    upkeep.start_soon(self.services.purgatory.run)
                    upkeep.start_soon(self._transaction_partitions.run)
                    upkeep.start_soon(keep_transactions, self.services.transactions, self.config)
                    upkeep.start_soon(remove_expired_tokens, self.services.delegation_tokens, self.config)
                    if monitoring is not None:
                        upkeep.start_soon(monitoring.run)
                    await self._node.start(upkeep, self._replicas.take_roles, self.directories.wait_for_change)
                    upkeep.start_soon(self._leave_when_told)
                    upkeep.start_soon(self._serve, server, upkeep.cancel_scope)
                    await self._node.wait_until_unfenced()
                    # A lone broker has these topics already: it needs no other broker to create them.
                    await create_among_others(self.services.metadata, self.config.initial_topics)
                    if self._zookeeper is not None:
                        upkeep.start_soon(self._serve_zookeeper, self._zookeeper)
                    self.services.serving.is_ready = True
                    task_status.started()
            finally:
                self.services.logs.close()
        finally:
            self._node.close_listener()
            if self._zookeeper is not None:
                self._zookeeper.close()
            server.close()

    async def _serve(self, server: Server, upkeep: trio.CancelScope) -> None:
        await server.run(self._stop)
        upkeep.cancel()

    def _open_faults(self) -> FaultInjection | None:
        """Return the fault injection, if it is enabled, and put this broker's clock and files under its control."""
        if not self.config.gregor_fault_injection_enable:
            return None
        from ..faults.injection import FaultInjection

        faults = FaultInjection(self._clock)
        faults.take(self.config.fault_rules, self.config.gregor_fault_clock_offset_ms)
        self._clock = faults.clock
        return faults

    def _new_dispatcher(self, apis: Mapping[int, Api]) -> Dispatcher:
        """Return a dispatcher for these APIs, which applies fault rules if fault injection is enabled."""
        if self._faults is None:
            return Dispatcher(self.services, apis, self._node.route)
        from ..api.faults.request_faults import FaultyDispatcher

        return FaultyDispatcher(self.services, apis, self._node.route, self._faults)

    def stop(self) -> None:
        """Make `run` end: accept no new connections, answer delayed fetches now, finish the requests in flight.

        In a cluster of several brokers, this broker first hands the leadership of its partitions to other brokers.
        """
        self.services.serving.is_ready = False
        if not self._leaving.is_set():
            self._leaving.set()
            return
        self.services.purgatory.stop()
        self._stop.set()

    async def _leave_when_told(self) -> None:
        await self._leaving.wait()
        await self._node.leave()
        self.stop()

    def _new_logs(self) -> LogManager:
        config = self.config
        return LogManager(
            config.log_dirs,
            config.log_config(),
            self._clock,
            node_id=config.node_id,
            first_cluster_id=config.gregor_cluster_id,
            files=None if self._faults is None else self._faults.files,
        )

    def _new_node(self, metadata: MetadataStore, logs: LogManager, partitions: PartitionRegistry) -> Node:
        if self.config.roles.is_alone:
            return LoneNode(metadata)
        # A lone broker does not load these modules at the start.
        from ..node.membership import Membership

        return Membership(self.config, self._clock, metadata, logs, partitions)

    def _new_authorizer(self) -> StandardAuthorizer | None:
        if not self.config.authorizer_class_name:
            return None
        # Most brokers have no authorizer, and do not load this module at the start.
        from ..authorization.standard_authorizer import StandardAuthorizer

        return StandardAuthorizer(
            self.config.super_user_names,
            allows_without_acl=self.config.allow_everyone_if_no_acl_found,
            most_decisions=self.config.gregor_authorizer_cache_max_entries,
        )

    def _open_listeners(self) -> Server:
        config = self.config
        # Configuration files meant for Kafka name the controller's listeners; a lone broker needs no such listener.
        controllers = {name.upper() for name in config.controller_listener_names or ()}
        endpoints = [e for e in parse_endpoints("listeners", config.listeners) if e.name not in controllers]
        if not endpoints and config.roles.is_broker:
            raise ListenerError("listeners: no listener for clients is named")
        protocols = {
            endpoint.name: security_protocol(endpoint.name, config.security_protocols) for endpoint in endpoints
        }
        # A broker that is alone in its cluster does not connect to itself.
        for_brokers = None if config.roles.is_alone else inter_broker_listener(config)
        guards = self._guards.open(protocols, for_brokers=for_brokers)
        parse_counts(config.max_connections_per_ip_overrides)
        server = Server(
            endpoints,
            self.dispatcher,
            self.services.clients,
            config,
            throttle=self._connection_rates,
            options=socket_options(self.config),
            drain_s=config.gregor_shutdown_timeout_ms / 1000,
            guards=guards,
            protected=self._node.protected_listener,
            times=self.services.metrics.request_times,
            lane=BulkLane(config),
            rounds=self._rounds,
        )
        self.services.serving.listening = server.bound
        self.services.serving.activity |= server.activity
        return server

    async def _load_seed_data(self) -> None:
        if not self.config.roles.is_alone or not (self.config.gregor_load or marker_of(self.config).exists()):
            return
        # Most brokers load nothing.
        from .loading import load_seed_data

        await load_seed_data(self.services)

    def _open_monitoring(self, server: Server) -> MetricPages | None:
        address = self.config.gregor_metrics_listener
        if not address:
            return None
        # A broker without a metrics listener does not load the listener's modules at the start.
        from ..reporting.pages import open_monitoring

        monitoring = open_monitoring(self.services, address, server)
        self.services.serving.metrics_address = monitoring.bound
        return monitoring

    def _open_zookeeper(self) -> ZooKeeperListener | None:
        if not self.config.gregor_zookeeper_listeners:
            return None
        # Few brokers need these modules.
        from ..zookeeper.listener import ZooKeeperListener

        return ZooKeeperListener(self.config)

    async def _serve_zookeeper(self, listener: ZooKeeperListener) -> None:
        from ..zookeeper.broker_cluster import BrokerCluster

        ask_broker = self._node.peers.ask if self._node.peers else None
        await listener.run(BrokerCluster(self.services, self.dispatcher, ask_broker))

    def _open_logs(self) -> None:
        try:
            self.services.metadata.open(self.services.logs)
        except OSError as fault:
            raise StorageUnavailableError(unusable(self.config.log_dirs[0], fault)) from fault
        self._replicas.start()
        self.services.metadata.subscribe(self._follow)
        if self.services.authorizer is not None:
            self.services.authorizer.load(self.services.metadata.state.acls.values())
        if self.config.broker_overrides:
            # The listeners were opened before the dynamic configuration was known.
            self._guards.take_changes()
            self._node.take_certificates()
        self._take_faults()
        self._offer_apis()
        self._take_quotas()
        if self.config.gregor_cluster_id not in (None, self.services.metadata.cluster_id):
            found, told = self.services.metadata.cluster_id, self.config.gregor_cluster_id
            logger.warning("log.dirs belong to cluster %s: gregor.cluster.id=%s is ignored", found, told)
        if self.config.roles.is_alone:
            create_alone(self.services.metadata, self.config.initial_topics)
            for index in range(self._transaction_log.existing_partitions()):
                for entries in self._transaction_log.replay(index):
                    self.services.transactions.replay(entries)
            in_use = self.services.transactions.producer_ids()
            self.services.metadata.give_no_producer_id_before(first_id_after(in_use))
            self.services.transactions.resume()

    def _take_faults(self) -> None:
        if self._faults is not None:
            self._faults.take(self.config.fault_rules, self.config.gregor_fault_clock_offset_ms)

    def _follow(self, change: MetadataChange) -> None:
        if isinstance(change, TopicDeleted):
            if change.is_recorded:
                self.services.deferred_groups.topic_deleted(change.topic.name)
            self.services.metrics.forget_topic(change.topic.name)
        elif isinstance(change, BrokerConfigChanged):
            self._take_faults()
            self._guards.take_changes()
            self._node.take_certificates()
            if self._server is not None:
                self._server.take_changes()
        elif isinstance(change, QuotasChanged):
            self._take_quotas()
        elif isinstance(change, AclsChanged):
            if self.services.authorizer is not None:
                self.services.authorizer.follow(change)
        elif isinstance(change, FeaturesChanged):
            self._offer_apis()

    def _take_quotas(self) -> None:
        self.services.quotas.take(self.services.metadata.state.quotas)
        self._connection_rates.take(self.services.metadata.state.quotas)

    def _offer_apis(self) -> None:
        self.dispatcher.serve(
            with_transactions_v2() if has_transactions_v2(self.services.metadata.state.features) else APIS
        )
