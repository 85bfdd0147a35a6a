"""The broker as a whole: its parts, the order in which the parts start, and how they stop."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

import trio

from ...protocol.errors import BrokerError
from ...protocol.internal_topics import GROUP_METADATA, TRANSACTION_STATE
from ...storage.clock import Clock, SystemClock
from ...storage.disk.log_directories import unusable
from ...storage.disk.log_directory import StorageUnavailableError
from ...storage.log_manager import LogManager
from ..api.contract import Api
from ..api.dispatch import Dispatcher, own_handler
from ..api.services import Services
from ..api.table import APIS, with_transactions_v2
from ..config import BrokerConfig
from ..config.listeners import ListenerError, SocketOptions, parse_counts, parse_endpoints, security_protocol
from ..coordinators.groups.coordinator import GroupCoordinator
from ..coordinators.internal_log.coordinator_log import CoordinatorLog
from ..coordinators.internal_log.led_partitions import Elections, LedPartitions
from ..coordinators.internal_log.topic_partitions import InternalTopicPartitions
from ..coordinators.transactions.coordinator import CoordinatorSettings, TransactionCoordinator
from ..coordinators.transactions.markers import PartitionMarkers
from ..metadata.changes import BrokerConfigChanged, FeaturesChanged, MetadataChange, QuotasChanged, TopicDeleted
from ..metadata.features import has_transactions_v2
from ..metadata.producer_ids import ProducerIds, first_id_after
from ..metadata.store import MetadataStore
from ..monitoring.metrics import Metrics
from ..node.lone_node import LoneNode
from ..quotas.connection_rates import ConnectionRates
from ..quotas.enforcement import ClientQuotas
from ..replicas.directories import Directories
from ..replicas.fetching.conversion_pool import ConversionPool
from ..replicas.fetching.purgatory import Purgatory
from ..replicas.fetching.sessions import FetchSessionCache
from ..replicas.log_moves import LogMoves
from ..replicas.maintenance import compact_logs, maintain_logs
from ..replicas.partition_registry import PartitionRegistry
from ..replicas.replication.replicas import Replicas
from ..server.client_census import ClientCensus
from ..server.server import Server
from ..server.serving_state import ServingState
from .initial_topics import create_alone, create_among_others
from .loading import load_seed_data

if TYPE_CHECKING:
    from ..coordinators.transactions.producer_id_blocks import ProducerIdBlocks
    from ..faults.injection import FaultInjection
    from ..node.membership import Membership
    from ..reporting.pages import Monitoring

logger = logging.getLogger(__name__)


class Broker:
    """A broker that the constructor assembles and that `run` keeps running."""

    def __init__(self, config: BrokerConfig, clock: Clock | None = None) -> None:
        self.config = config
        self._clock = clock or SystemClock()
        self._faults = self._open_faults()
        self._connection_rates = ConnectionRates(config, self._clock)
        metadata = MetadataStore(config, self._clock)
        partitions = PartitionRegistry(exists=metadata.has_partition)
        logs = LogManager(
            config.log_dirs,
            config.log_config(),
            self._clock,
            node_id=config.node_id,
            first_cluster_id=config.gregor_cluster_id,
            files=None if self._faults is None else self._faults.files,
        )
        self.membership = self._new_membership(metadata, logs, partitions)
        """The membership of this node in a cluster of several nodes; None for a lone broker."""
        replication = self.membership.replication if self.membership else None
        self._replicas = Replicas(metadata, logs, partitions, replication)
        self.directories = Directories(logs, self._replicas)
        internal_topics = InternalTopicPartitions(metadata, partitions)
        groups = GroupCoordinator(config, self._clock, internal_topics, metadata)
        markers = PartitionMarkers(
            partitions,
            lambda index, producer, commits: groups.transaction_ended(index, producer, is_commit=commits),
            self._clock,
        )
        self._transaction_log = CoordinatorLog(TRANSACTION_STATE, internal_topics, self._clock)
        self._transaction_partitions = LedPartitions(
            self._transaction_log,
            is_alone=config.roles.is_alone,
            begin_reading=lambda _: transactions,
            forget=lambda index: transactions.forget_partition(index),
        )
        producer_ids = self._new_producer_ids(metadata)
        transactions = TransactionCoordinator(
            self._transaction_log,
            self.membership.new_markers(markers, lambda ended: transactions.markers_written(ended))
            if self.membership
            else markers,
            producer_ids.next,
            self._clock,
            CoordinatorSettings(config.transaction_max_timeout_ms, config.transactional_id_expiration_ms),
            self._transaction_partitions.check,
        )
        self.services = Services(
            config=config,
            clock=self._clock,
            faults=self._faults,
            metrics=Metrics(),
            clients=ClientCensus(self._clock, config.gregor_client_census_max_clients),
            quotas=ClientQuotas(config, self._clock),
            metadata=metadata,
            node=self.membership or LoneNode(config.node_id),
            logs=logs,
            log_moves=LogMoves(logs, self._clock, self.membership.assignments.check if self.membership else None),
            partitions=partitions,
            replicas=self._replicas,
            purgatory=Purgatory(),
            fetch_sessions=FetchSessionCache(config.max_incremental_fetch_session_cache_slots),
            conversions=ConversionPool(
                config.gregor_message_downconversion_chunk_bytes, config.gregor_message_codec_threads
            ),
            validations=trio.CapacityLimiter(config.gregor_message_codec_threads),
            producer_ids=producer_ids,
            groups=groups,
            transactions=transactions,
            transaction_markers=markers,
            leader_throttle=replication.throttles.leader if replication else None,
            serving=ServingState(),
        )
        """The parts of this broker that handlers use."""
        self.dispatcher = self._new_dispatcher(APIS)
        if self.membership is not None:
            self.membership.serve(self.services, self._new_dispatcher(self.membership.controller_apis))
            coordinators = {GROUP_METADATA: groups.partitions, TRANSACTION_STATE: self._transaction_partitions}
            self._replicas.listen(Elections(coordinators))
        self._leaving = trio.Event()
        self._stop = trio.Event()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Open the logs, serve until `stop`, then close the logs; report started once connections are accepted.

        Raises ListenerError, StorageUnavailableError, BrokerError or ConfigError if the broker cannot start, and
        StorageUnavailableError if the broker cannot continue; the text of each error is one line for the operator.
        """
        server = self._open_listeners()
        try:
            if self.membership is not None:
                self.membership.open_listener(self._connection_rates, self._socket_options())
                self.services.logs.cluster_id = await self.membership.find_cluster_id()
            self.services.logs.open_all()
            try:
                self._open_logs()
                if self.config.roles.is_alone:
                    await load_seed_data(self.services)
                monitoring = self._open_monitoring()
                async with trio.open_nursery() as upkeep:
                    upkeep.start_soon(self.directories.run)
                    await upkeep.start(self.services.groups.run)
                    upkeep.start_soon(maintain_logs, self.services.logs, self.config, self._clock)
                    upkeep.start_soon(compact_logs, self.services.logs, self.config)
                    upkeep.start_soon(self.services.log_moves.run)
                    upkeep.start_soon(self._replicas.make_later_logs)
                    upkeep.start_soon(self.services.purgatory.late.run)
                    upkeep.start_soon(self._transaction_partitions.run)
                    upkeep.start_soon(self._keep_transactions)
                    if monitoring is not None:
                        upkeep.start_soon(monitoring.run)
                    if self.membership is not None:
                        await upkeep.start(
                            self.membership.run, self._replicas.take_roles, self.directories.wait_for_change
                        )
                        upkeep.start_soon(self._leave_when_told)
                    upkeep.start_soon(self._serve, server, upkeep.cancel_scope)
                    if self.membership is not None:
                        await self.membership.wait_until_unfenced()
                        await create_among_others(self.services.metadata, self.config.initial_topics)
                    self.services.serving.is_ready = True
                    task_status.started()
            finally:
                self.services.logs.close()
        finally:
            if self.membership is not None:
                self.membership.close_listener()
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
        route = self.membership.route if self.membership else own_handler
        if self._faults is None:
            return Dispatcher(self.services, apis, route)
        from ..api.faults.request_faults import FaultyDispatcher

        return FaultyDispatcher(self.services, apis, route, self._faults)

    def stop(self) -> None:
        """Make `run` end: accept no new connections, answer delayed fetches now, finish the requests in flight.

        In a cluster of several brokers, this broker first hands the leadership of its partitions to other brokers.
        """
        self.services.serving.is_ready = False
        if self.membership is not None and not self._leaving.is_set():
            self._leaving.set()
            return
        self.services.purgatory.stop()
        self._stop.set()

    async def _leave_when_told(self) -> None:
        await self._leaving.wait()
        if self.membership is not None:
            await self.membership.leave()
        self.stop()

    def _new_membership(
        self, metadata: MetadataStore, logs: LogManager, partitions: PartitionRegistry
    ) -> Membership | None:
        if self.config.roles.is_alone:
            return None
        # A lone broker does not load these modules at the start.
        from ..node.membership import Membership

        return Membership(self.config, self._clock, metadata, logs, partitions)

    def _new_producer_ids(self, metadata: MetadataStore) -> ProducerIds | ProducerIdBlocks:
        blocks = self.membership.producer_ids if self.membership else None
        return blocks or ProducerIds(metadata.allocate_producer_ids)

    def _open_listeners(self) -> Server:
        config = self.config
        # Configuration files meant for Kafka name the controller's listeners; a lone broker needs no such listener.
        controllers = {name.upper() for name in config.controller_listener_names or ()}
        endpoints = [e for e in parse_endpoints("listeners", config.listeners) if e.name not in controllers]
        if not endpoints and config.roles.is_broker:
            raise ListenerError("listeners: no listener for clients is named")
        for endpoint in endpoints:
            protocol = security_protocol(endpoint.name, config.security_protocols)
            if protocol != "PLAINTEXT":
                raise ListenerError(f"listener {endpoint.name}: {protocol} is not supported yet, only PLAINTEXT")
        parse_counts(config.max_connections_per_ip_overrides)
        server = Server(
            endpoints,
            self.dispatcher,
            self.services.clients,
            config,
            throttle=self._connection_rates,
            options=self._socket_options(),
            drain_s=config.gregor_shutdown_timeout_ms / 1000,
        )
        self.services.serving.listening = server.bound
        self.services.metrics.gauge("kafka_network_socketserver_connections", lambda: server.connection_count)
        return server

    def _open_monitoring(self) -> Monitoring | None:
        address = self.config.gregor_metrics_listener
        if not address:
            return None
        # A broker without a metrics listener does not load the listener's modules at the start.
        from ..reporting.pages import Monitoring

        monitoring = Monitoring(self.services, address)
        self.services.serving.metrics_address = monitoring.bound
        return monitoring

    def _socket_options(self) -> SocketOptions:
        """Return the options of this broker's listening sockets."""
        config = self.config
        # Kafka's default of 100 kB would keep the kernel from enlarging buffers for fast clients: use only sizes that
        # are set.
        is_set = config.is_set
        return SocketOptions(
            config.socket_listen_backlog_size,
            config.socket_send_buffer_bytes if is_set("socket.send.buffer.bytes") else -1,
            config.socket_receive_buffer_bytes if is_set("socket.receive.buffer.bytes") else -1,
        )

    def _open_logs(self) -> None:
        try:
            self.services.metadata.open(self.services.logs)
        except OSError as fault:
            raise StorageUnavailableError(unusable(self.config.log_dirs[0], fault)) from fault
        self._replicas.start()
        self.services.metadata.subscribe(self._follow)
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
                self.services.groups.topic_deleted(change.topic.name)
            self.services.metrics.forget_topic(change.topic.name)
        elif isinstance(change, BrokerConfigChanged):
            self._take_faults()
        elif isinstance(change, QuotasChanged):
            self._take_quotas()
        elif isinstance(change, FeaturesChanged):
            self._offer_apis()

    def _take_quotas(self) -> None:
        self.services.quotas.take(self.services.metadata.state.quotas)
        self._connection_rates.take(self.services.metadata.state.quotas)

    def _offer_apis(self) -> None:
        self.dispatcher.serve(
            with_transactions_v2() if has_transactions_v2(self.services.metadata.state.features) else APIS
        )

    async def _keep_transactions(self) -> None:
        """Abort transactions that timed out, remove transactional ids that expired, write markers that are missing."""
        pause_s = self.config.transaction_abort_timed_out_transaction_cleanup_interval_ms / 1000
        while True:
            await trio.sleep(pause_s)
            try:
                self.services.transactions.abort_timed_out()
                self.services.transactions.resume()
                self.services.transactions.forget_expired()
            except BrokerError as error:
                logger.error("upkeep of transactions: %s", error)
