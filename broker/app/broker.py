"""The broker: what it is made of, in the order in which the parts come up, and how it ends."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

import trio

from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.internal_topics import GROUP_METADATA, TRANSACTION_STATE
from ...storage.clock import Clock, SystemClock
from ...storage.disk.log_directories import unusable
from ...storage.disk.log_directory import StorageUnavailableError
from ...storage.log_manager import LogManager
from ..api.dispatch import APIS, Api, Dispatcher, with_transactions_v2
from ..config import BrokerConfig
from ..config.listeners import Endpoint, ListenerError, SocketOptions, parse_counts, parse_endpoints, security_protocol
from ..coordinators.groups.coordinator import GroupCoordinator
from ..coordinators.internal_log.coordinator_log import CoordinatorLog
from ..coordinators.internal_log.led_partitions import Elections, LedPartitions
from ..coordinators.transactions.coordinator import CoordinatorSettings, TransactionCoordinator
from ..coordinators.transactions.markers import PartitionMarkers
from ..metadata.changes import BrokerConfigChanged, FeaturesChanged, MetadataChange, QuotasChanged, TopicDeleted
from ..metadata.features import has_transactions_v2
from ..metadata.producer_ids import ProducerIds
from ..metadata.store import MetadataStore
from ..monitoring.metrics import Metrics
from ..quotas.connection_rates import ConnectionRates
from ..quotas.enforcement import ClientQuotas
from ..replicas.directories import Directories
from ..replicas.fetching.conversion_pool import ConversionPool
from ..replicas.fetching.purgatory import Purgatory
from ..replicas.fetching.sessions import FetchSessionCache
from ..replicas.log_moves import LogMoves
from ..replicas.maintenance import compact_logs, maintain_logs
from ..replicas.partition import Partition
from ..replicas.partition_registry import PartitionRegistry
from ..replicas.replication.replicas import Replicas
from ..server.client_census import ClientCensus
from ..server.server import Server

if TYPE_CHECKING:
    from ..controller.controller import Controller
    from ..coordinators.transactions.producer_id_blocks import ProducerIdBlocks
    from ..faults.injection import FaultInjection
    from ..node.membership import Membership
    from ..reporting.pages import Monitoring

logger = logging.getLogger(__name__)


class Broker:
    """One broker: its state as attributes for the handlers, its life in `run`."""

    def __init__(self, config: BrokerConfig, clock: Clock | None = None) -> None:
        self.config = config
        self.clock = clock or SystemClock()
        self.faults = self._open_faults()
        self.metrics = Metrics()
        self.clients = ClientCensus(self.clock, config.gregor_client_census_max_clients)
        self.quotas = ClientQuotas(config, self.clock)
        self.connection_rates = ConnectionRates(config, self.clock)
        self.partitions = PartitionRegistry(exists=lambda topic, index: self.metadata.has_partition(topic, index))
        self.purgatory = Purgatory()
        self.fetch_sessions = FetchSessionCache(config.max_incremental_fetch_session_cache_slots)
        self.conversions = ConversionPool(
            config.gregor_message_downconversion_chunk_bytes, config.gregor_message_codec_threads
        )
        self.validations = trio.CapacityLimiter(config.gregor_message_codec_threads)
        """Large compressed batches that are checked at a time, each in a thread."""
        self.dispatcher = self.new_dispatcher()
        self.logs = LogManager(
            config.log_dirs,
            config.log_config(),
            self.clock,
            node_id=config.node_id,
            files=None if self.faults is None else self.faults.files,
        )
        self.log_moves = LogMoves(self.logs, self.clock)
        self.metadata = MetadataStore(config, self.clock)
        self.membership = self._new_membership()
        """This node's place among others; None for a broker that is a cluster of its own."""
        self.remote_transactions = self.membership.remote_transactions if self.membership else None
        replication = self.membership.replication if self.membership else None
        self.leader_throttle = replication.throttles.leader if replication else None
        """What lets followers wait that are not in sync."""
        self.replicas = Replicas(self.metadata, self.logs, self.partitions, replication)
        self.directories = Directories(self.logs, self.replicas)
        internal_topics = InternalTopicPartitions(self.metadata, self.partitions)
        self.producer_ids = self._new_producer_ids()
        self.groups = GroupCoordinator(config, self.clock, internal_topics, self.metadata)
        self._transaction_log = CoordinatorLog(TRANSACTION_STATE, internal_topics, self.clock)
        self.transaction_markers = PartitionMarkers(self.partitions, self._transaction_ended_in_groups, self.clock)
        self._transaction_partitions = LedPartitions(self._transaction_log, is_alone=config.roles.is_alone)
        self.transactions = TransactionCoordinator(
            self._transaction_log,
            self.membership.markers if self.membership else self.transaction_markers,
            self.producer_ids.next,
            self.clock,
            CoordinatorSettings(config.transaction_max_timeout_ms, config.transactional_id_expiration_ms),
            self._transaction_partitions.check,
        )
        self._transaction_partitions.begin_reading = lambda _: self.transactions
        self._transaction_partitions.forget = self.transactions.forget_partition
        if self.membership is not None:
            self._introduce_coordinators(self.membership)
        self._leaving = trio.Event()
        self._stop = trio.Event()
        self.listening: list[Endpoint] = []
        """Where the broker accepts connections, once it does."""
        self.is_ready = False
        """Whether clients are served."""
        self.metrics_address: Endpoint | None = None
        """Where metrics are, if they are to be had."""

    def _introduce_coordinators(self, membership: Membership) -> None:
        """Have transactions end on other brokers too, and coordinators hear which partitions are theirs."""
        membership.markers.here = self.transaction_markers
        membership.markers.written = self.transactions.markers_written
        coordinators = {GROUP_METADATA: self.groups.partitions, TRANSACTION_STATE: self._transaction_partitions}
        self.replicas.listen(Elections(coordinators))

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Open the logs, serve until `stop`, close the logs; started once connections are accepted.

        Raises ListenerError, StorageUnavailableError, BrokerError or ConfigError if it cannot start, and
        StorageUnavailableError when it cannot go on; the text of each is one line for the operator.
        """
        server = self._open_listeners()
        try:
            if self.membership is not None:
                self.membership.open_listener()
                self.logs.cluster_id = await self.membership.find_cluster_id()
            self.logs.open_all()
            try:
                self._open_logs()
                monitoring = self._open_monitoring()
                async with trio.open_nursery() as upkeep:
                    upkeep.start_soon(self.directories.run)
                    await upkeep.start(self.groups.run)
                    upkeep.start_soon(maintain_logs, self.logs, self.config, self.clock)
                    upkeep.start_soon(compact_logs, self.logs, self.config)
                    upkeep.start_soon(self.log_moves.run)
                    upkeep.start_soon(self.replicas.make_later_logs)
                    upkeep.start_soon(self.purgatory.late.run)
                    upkeep.start_soon(self._transaction_partitions.run)
                    upkeep.start_soon(self._keep_transactions)
                    if monitoring is not None:
                        upkeep.start_soon(monitoring.run)
                    if self.membership is not None:
                        await upkeep.start(self.membership.run)
                        upkeep.start_soon(self._leave_when_told)
                    upkeep.start_soon(self._serve, server, upkeep.cancel_scope)
                    if self.membership is not None:
                        await self.membership.wait_until_unfenced()
                    self.is_ready = True
                    task_status.started()
            finally:
                self.logs.close()
        finally:
            if self.membership is not None:
                self.membership.close_listener()
            server.close()

    async def _serve(self, server: Server, upkeep: trio.CancelScope) -> None:
        await server.run(self._stop)
        upkeep.cancel()

    def _open_faults(self) -> FaultInjection | None:
        """What makes this broker fail on purpose; its clock and its files are then under the injection's control."""
        if not self.config.gregor_fault_injection_enable:
            return None
        from ..faults.injection import FaultInjection

        faults = FaultInjection(self.clock)
        faults.take(self.config.fault_rules, self.config.gregor_fault_clock_offset_ms)
        self.clock = faults.clock
        return faults

    def new_dispatcher(self, apis: Mapping[int, Api] = APIS) -> Dispatcher:
        """What answers requests of these APIs, as faults let it."""
        if self.faults is None:
            return Dispatcher(self, apis)
        from ..api.faults.request_faults import FaultyDispatcher

        return FaultyDispatcher(self, apis, self.faults)

    def stop(self) -> None:
        """Let `run` end: no new connections, parked fetches answer now, requests in flight finish.

        A broker of several first lets others lead its partitions.
        """
        self.is_ready = False
        if self.membership is not None and not self._leaving.is_set():
            self._leaving.set()
            return
        self.purgatory.stop()
        self._stop.set()

    async def _leave_when_told(self) -> None:
        await self._leaving.wait()
        if self.membership is not None:
            await self.membership.leave()
        self.stop()

    def _new_membership(self) -> Membership | None:
        if self.config.roles.is_alone:
            return None
        # A broker that is a cluster of its own should not wait for these modules at the start.
        from ..node.membership import Membership

        return Membership(self)

    def _new_producer_ids(self) -> ProducerIds | ProducerIdBlocks:
        blocks = self.membership.producer_ids if self.membership else None
        return blocks or ProducerIds(self.metadata.allocate_producer_ids)

    @property
    def controller_here(self) -> Controller:
        """The controller, on the node that it is on. Raises BrokerError NOT_CONTROLLER."""
        if self.membership is None or self.membership.controller is None:
            raise BrokerError(ErrorCode.NOT_CONTROLLER)
        return self.membership.controller

    @property
    def controller_dispatcher(self) -> Dispatcher:
        """Answers requests that came to the controller. Raises BrokerError NOT_CONTROLLER."""
        if self.membership is None:
            raise BrokerError(ErrorCode.NOT_CONTROLLER)
        return self.membership.controller_dispatcher

    def _open_listeners(self) -> Server:
        config = self.config
        # Controllers' listeners are named in files meant for Kafka; this broker needs none.
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
            self.clients,
            config,
            throttle=self.connection_rates,
            options=self.socket_options(),
            drain_s=config.gregor_shutdown_timeout_ms / 1000,
        )
        self.listening = server.bound
        self.metrics.gauge("kafka_network_socketserver_connections", lambda: server.connection_count)
        return server

    def _open_monitoring(self) -> Monitoring | None:
        address = self.config.gregor_metrics_listener
        if not address:
            return None
        # Nobody who has no metrics listener should wait for its modules at the start.
        from ..reporting.pages import Monitoring

        monitoring = Monitoring(self, address)
        self.metrics_address = monitoring.bound
        return monitoring

    def socket_options(self) -> SocketOptions:
        """How this broker's listening sockets are made."""
        config = self.config
        # Kafka's default of 100 kB keeps the kernel from adapting to fast clients: only what was asked for counts.
        is_set = config.is_set
        return SocketOptions(
            config.socket_listen_backlog_size,
            config.socket_send_buffer_bytes if is_set("socket.send.buffer.bytes") else -1,
            config.socket_receive_buffer_bytes if is_set("socket.receive.buffer.bytes") else -1,
        )

    def _open_logs(self) -> None:
        try:
            self.metadata.open(self.logs)
        except OSError as fault:
            raise StorageUnavailableError(unusable(self.config.log_dirs[0], fault)) from fault
        self.replicas.start()
        self.metadata.subscribe(self._follow)
        self._take_faults()
        self._offer_apis()
        self._take_quotas()
        if self.config.roles.is_alone:
            for index in range(self._transaction_log.existing_partitions()):
                for entries in self._transaction_log.replay(index):
                    self.transactions.replay(entries)
            self.transactions.resume()

    def _take_faults(self) -> None:
        if self.faults is not None:
            self.faults.take(self.config.fault_rules, self.config.gregor_fault_clock_offset_ms)

    def _follow(self, change: MetadataChange) -> None:
        if isinstance(change, TopicDeleted):
            if change.is_recorded:
                self.groups.topic_deleted(change.topic.name)
            self.metrics.forget_topic(change.topic.name)
        elif isinstance(change, BrokerConfigChanged):
            self._take_faults()
        elif isinstance(change, QuotasChanged):
            self._take_quotas()
        elif isinstance(change, FeaturesChanged):
            self._offer_apis()

    def _take_quotas(self) -> None:
        self.quotas.take(self.metadata.state.quotas)
        self.connection_rates.take(self.metadata.state.quotas)

    def _offer_apis(self) -> None:
        self.dispatcher.serve(with_transactions_v2() if has_transactions_v2(self.metadata.state.features) else APIS)

    def _transaction_ended_in_groups(self, index: int, producer_id: int, is_commit: bool) -> None:
        self.groups.transaction_ended(index, producer_id, is_commit=is_commit)

    async def _keep_transactions(self) -> None:
        """Abort what has timed out, forget what has expired, write markers that are still missing."""
        pause_s = self.config.transaction_abort_timed_out_transaction_cleanup_interval_ms / 1000
        while True:
            await trio.sleep(pause_s)
            try:
                self.transactions.abort_timed_out()
                self.transactions.resume()
                self.transactions.forget_expired()
            except BrokerError as error:
                logger.error("upkeep of transactions: %s", error)


class InternalTopicPartitions:
    """Where coordinators find the partitions of their topics (`coordinator_log.InternalTopics`)."""

    def __init__(self, metadata: MetadataStore, partitions: PartitionRegistry) -> None:
        self._metadata = metadata
        self._partitions = partitions

    def ensure_internal_topic(self, name: str) -> int:
        """Create the topic if it is missing; returns its number of partitions."""
        return len(self._metadata.ensure_topic(name).partitions)

    def internal_topic_partitions(self, name: str) -> int:
        """How many partitions the topic has; 0 if there is no such topic."""
        topic = self._metadata.topics.get(name)
        return 0 if topic is None else len(topic.partitions)

    def internal_partition(self, name: str, index: int) -> Partition | None:
        """A partition of it, if there is such one here."""
        return self._partitions.find(name, index)
