"""The parts that a node has in a cluster of several nodes only, and how these parts start and stop."""

from __future__ import annotations

import logging
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

import trio

from ...protocol.apis import AnyApiKey, response_class
from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.internal_topics import CLUSTER_METADATA
from ...protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ...protocol.messages.describe_quorum import ReplicaState
from ...protocol.refusals import has_top_level_error, merge, refused
from ...protocol.schema import Message
from ...storage.clock import Clock
from ...storage.disk.paths import META_PROPERTIES
from ...storage.log_manager import LogManager
from ..api.contract import Api, Handler, RequestContext
from ..api.dispatch import Dispatcher
from ..api.handlers.cluster import CONTROLLERS
from ..api.services import Services
from ..authentication.listener_guards import ListenerGuards
from ..authentication.own_login import OwnLogins
from ..config import BrokerConfig
from ..config.listener_rules import ANY_ADDRESS
from ..config.listeners import Endpoint, SocketOptions, parse_endpoints, security_protocol
from ..config.roles import Voter, controller_protocols, inter_broker_listener
from ..controller.controller import Controller
from ..coordinators.internal_log.led_partitions import Elections, LedTopic
from ..coordinators.internal_log.topic_partitions import InternalTopicPartitions
from ..coordinators.internal_log.unreplicated_writes import NotReplicatedError, partitions_led_here, replication_of
from ..coordinators.transactions.cluster_markers import ClusterMarkers
from ..coordinators.transactions.markers import PartitionMarkers
from ..coordinators.transactions.producer_id_blocks import ProducerIdBlocks
from ..coordinators.transactions.remote_transactions import RemoteTransactions
from ..coordinators.transactions.transaction import Transaction
from ..metadata.producer_ids import ProducerIds
from ..metadata.store import MetadataStore
from ..peers.metadata_follower import MetadataFollower
from ..peers.peer_connection import Traffic
from ..peers.peers import ControllerLink, Peers, RemoteController
from ..quotas.connection_rates import ConnectionRates
from ..replicas.partition import Partition
from ..replicas.partition_registry import PartitionRegistry
from ..replicas.replication.leadership import InSyncCounts
from ..replicas.replication.replicas import Replicas
from ..replicas.replication.replication import Replication
from ..replicas.replication.throttle import ReplicationThrottle
from ..server.outcome import Outcome, then
from ..server.server import Server
from .controller_apis import CONTROLLER_APIS
from .controller_link import ControllerHere
from .directory_assignments import DirectoryAssignments
from .forwarding import Forwarding
from .lifecycle import NOT_REGISTERED, BrokerLifecycle
from .topic_creation import TopicCreation

logger = logging.getLogger(__name__)

PATIENCE_S = 5.0
"""Time after which a broker that cannot reach its controller logs a warning and retries."""
SHUTDOWN_S = 5.0
"""Longest time in seconds that a controlled shutdown waits until other brokers lead this broker's partitions."""


class Membership:
    """A node (`node.Node`) in a cluster of several nodes."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        metadata: MetadataStore,
        logs: LogManager,
        partitions: PartitionRegistry,
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._logs = logs
        self._partitions = partitions
        self._internal_topics = InternalTopicPartitions(metadata, partitions)
        self._logins = OwnLogins(config)
        self.peers = Peers(metadata, inter_broker_listener(config), f"broker-{config.node_id}", self._logins.to_brokers)
        self.controller: Controller | None = None
        """The controller, if it runs on this node."""
        self.forwarding: Forwarding | None = None
        self._remotes: list[RemoteController] = []
        self._follower: MetadataFollower | None = None
        self._topic_creation: TopicCreation | None = None
        self.link: ControllerLink
        if config.roles.controller is None:
            self.controller = Controller(metadata, config)
            self.link = ControllerHere(lambda: self.controller_dispatcher)
        else:
            self._follow(config.roles.controller)
        self.lifecycle: BrokerLifecycle | None = None
        self.replication = Replication(
            config, clock, metadata, logs, partitions, peers=self.peers, link=self.link, broker_epoch=self._broker_epoch
        )
        self.remote_transactions = RemoteTransactions(metadata, self.peers)
        self.producer_ids = (
            ProducerIdBlocks(self.link, config.node_id, self._broker_epoch)
            if self.controller is None
            else ProducerIds(metadata.allocate_producer_ids)
        )
        self.assignments = DirectoryAssignments(self.link, metadata, logs, partitions, self._broker_epoch)
        self._controller_server: Server | None = None
        self._stop_serving = trio.Event()

    @property
    def leader_throttle(self) -> ReplicationThrottle:
        """The throttle of fetches by followers that are not in sync."""
        return self.replication.throttles.leader

    @property
    def in_sync_counts(self) -> InSyncCounts:
        """The changes of in-sync sets that this broker has requested."""
        return self.replication.rules.counts

    def controller_traffic(self) -> Traffic | None:
        """Return what was sent to the controller and received from it; None if the controller runs on this node."""
        return sum((remote.traffic for remote in self._remotes), Traffic()) if self._remotes else None

    @property
    def protected_listener(self) -> str:
        """The listener that other brokers use."""
        return inter_broker_listener(self._config)

    def serve(self, services: Services, new_dispatcher: Callable[[Mapping[int, Api]], Dispatcher]) -> None:
        """Set the parts that are created after this one: handlers' services, and the controller's dispatcher."""
        self._services = services
        self.controller_dispatcher = new_dispatcher(CONTROLLER_APIS)

    def report_elections(self, replicas: Replicas, coordinators: Mapping[str, LedTopic]) -> None:
        """Notify the coordinators, given by internal topic, of partitions that this broker starts or stops leading."""
        replicas.listen(Elections(coordinators))

    def log_moved(self, partition: Partition) -> None:
        """Report to the controller which log directory now has the partition."""
        self.assignments.check(partition)

    @property
    def controller_here(self) -> Controller:
        """The controller, if it runs on this node. Raises BrokerError NOT_CONTROLLER on other nodes."""
        if self.controller is None:
            raise BrokerError(ErrorCode.NOT_CONTROLLER)
        return self.controller

    def replica_lag(self) -> int:
        """Return the most records by which a followed partition was behind at its last fetch."""
        return self.replication.max_lag

    def least_fetch_rate(self) -> float:
        """Return the lowest rate of the tasks that copy partitions, in Fetch requests per second."""
        return self.replication.least_fetch_rate

    def observers(self, now_ms: int) -> list[ReplicaState]:
        """Return the brokers that follow this controller. Raises BrokerError NOT_CONTROLLER."""
        return self.controller_here.observers(now_ms)

    def unregister(self, broker_id: int) -> None:
        """Remove a broker from the cluster. Raises BrokerError: NOT_CONTROLLER, or as `Controller.unregister`."""
        self.controller_here.unregister(broker_id)

    def _broker_epoch(self) -> int:
        return self.lifecycle.epoch if self.lifecycle else NOT_REGISTERED

    def new_markers(self, here: PartitionMarkers, written: Callable[[Transaction], None]) -> ClusterMarkers:
        """Return the writer of markers for the whole cluster; see `ClusterMarkers`."""
        self._markers = ClusterMarkers(self._partitions, self._metadata, self.peers, here, written)
        return self._markers

    def route(self, api: Api, request: Message) -> Handler:
        """Return the handler of a request on this node (an `api.contract.Route`).

        Requests for the controller are forwarded; answers that depend on an internal topic wait for the topic's
        replicas.
        """
        forwarding = self.forwarding
        if forwarding is not None and api.is_for_controller is not None and api.is_for_controller(request):
            return partial(self._respond_of_controller, forwarding, api)
        if api.waits_for_replicas is not None:
            return partial(self._respond_when_replicated, api)
        return api.handler

    async def _respond_of_controller(
        self, forwarding: Forwarding, api: Api, request: Message, context: RequestContext
    ) -> Message:
        checked = api.checked_before_forwarding(request, context) if api.checked_before_forwarding else None
        try:
            if checked is None:
                return await forwarding.forward(request, context)
            response = (
                response_class(api.key)() if checked.rest is None else await forwarding.forward(checked.rest, context)
            )
        except BrokerError as error:
            return refuse_all(request, api.key, context.api_version, error)
        for part, refusal in checked.refused:
            merge(response, refuse_all(part, api.key, context.api_version, refusal))
        return response

    def _respond_when_replicated(self, api: Api, request: Message, context: RequestContext) -> Outcome[Message]:
        """Return the handler's response, or raise its refusal, once the records that either depends on are replicated.

        The answer of a request whose records are not replicated refuses all of its entries.
        """

        def respond(response: Message) -> Outcome[Message]:
            return self._once_replicated(api, request, context, lambda: response)

        def refuse(error: Exception) -> Outcome[Message]:
            if not isinstance(error, BrokerError):
                raise error
            code, message = error.code, error.message
            return self._once_replicated(api, request, context, lambda: raise_again(code, message))

        try:
            outcome = api.handler(request, context)
        except BrokerError as error:
            return refuse(error)
        return then(outcome, respond, refuse)

    def _once_replicated(
        self, api: Api, request: Message, context: RequestContext, respond: Callable[[], Message]
    ) -> Outcome[Message]:
        keys = () if api.waits_for_replicas is None else api.waits_for_replicas(request)
        timeout_s = self._config.offsets_commit_timeout_ms / 1000
        replication = replication_of(partitions_led_here(keys, self._internal_topics), timeout_s)
        if replication is None:
            return respond()

        def refuse(error: Exception) -> Message:
            if not isinstance(error, NotReplicatedError):
                raise error
            return refuse_all(request, api.key, context.api_version, error)

        return then(replication, lambda _: respond(), refuse)

    def _follow(self, controller: Voter) -> None:
        config = self._config
        backoff_s = config.controller_quorum_retry_backoff_ms / 1000
        address = (controller.host, controller.port)
        # Metadata fetches and forwarded requests may wait long; heartbeats have their own connection and never queue
        # behind.
        fetching, asking, forwarding = self._remotes = [
            RemoteController(address, f"{what}-{config.node_id}", self._logins.to_controller, retry_backoff_s=backoff_s)
            for what in ("metadata", "broker", "broker")
        ]
        timeout_s = config.controller_quorum_request_timeout_ms / 1000
        self._follower = MetadataFollower(self._metadata, fetching, timeout_s=timeout_s, retry_backoff_s=backoff_s)
        self.link = asking
        self.forwarding = Forwarding(forwarding)
        self._topic_creation = TopicCreation(asking)
        self._metadata.create_elsewhere = self._topic_creation.request
        logger.info("node %d follows the controller at %s:%d", config.node_id, *address)
        if config.roles.passed_over:
            others = ", ".join(f"{voter.host}:{voter.port}" for voter in config.roles.passed_over)
            logger.warning("Gregor supports one controller and uses the first voter only; ignored: %s", others)

    # --- before the logs are open

    def open_listener(self, throttle: ConnectionRates, options: SocketOptions, guards: ListenerGuards) -> None:
        """Open the controller's listener, if this node has one. Raises ListenerError."""
        endpoint = self._config.roles.controller_listener
        if endpoint is None:
            return
        protocol = security_protocol(endpoint.name, controller_protocols(self._config))
        self._controller_server = Server(
            [endpoint],
            self.controller_dispatcher,
            self._services.clients,
            self._config,
            throttle=throttle,
            options=options,
            drain_s=self._config.gregor_shutdown_timeout_ms / 1000,
            guards=guards.open({endpoint.name: protocol}),
        )

        self._services.serving.activity |= self._controller_server.activity

    def take_certificates(self) -> None:
        """Connect to other nodes with the present stores from now on."""
        self._logins.take_changes()

    def close_listener(self) -> None:
        """Close the controller's listener."""
        if self._controller_server is not None:
            self._controller_server.close()

    async def find_cluster_id(self) -> str | None:
        """Return the id of the controller's cluster once it answers; None if a log directory has an id already."""
        controller = self._config.roles.controller
        if controller is None or any(_has_cluster_id(path) for path in self._config.log_dirs):
            return None
        remote = RemoteController(
            (controller.host, controller.port), f"broker-{self._config.node_id}", self._logins.to_controller
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(remote.run)
            while True:
                try:
                    answer = await remote.ask(
                        DescribeClusterRequest(endpoint_type=CONTROLLERS),
                        DescribeClusterResponse,
                        timeout_s=PATIENCE_S,
                    )
                    break
                except BrokerError as error:
                    logger.warning("the controller is not reachable yet: %s", error.message or error.code.name)
            nursery.cancel_scope.cancel()
        if answer.error_code:
            raise BrokerError(ErrorCode(answer.error_code), answer.error_message)
        self._metadata.controller_id = answer.controller_id
        return answer.cluster_id

    # --- while the logs are open

    async def start(
        self,
        nursery: trio.Nursery,
        take_roles: Callable[[], None],
        wait_for_directories: Callable[[], Awaitable[None]],
    ) -> None:
        """Run the parts of the membership in ``nursery``; return once the broker is registered and has the metadata.

        `take_roles` is called then: it makes partitions leaders or followers. `wait_for_directories` returns after the
        health of a log directory has changed. Raises BrokerError if the controller refuses this broker.
        """
        await nursery.start(self._run, take_roles, wait_for_directories)

    async def _run(
        self,
        take_roles: Callable[[], None],
        wait_for_directories: Callable[[], Awaitable[None]],
        *,
        task_status: trio.TaskStatus[None],
    ) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(self.peers.run)
            for remote in self._remotes:
                await nursery.start(remote.run)
            if self._topic_creation is not None:
                await nursery.start(self._topic_creation.run)
            if self._follower is not None:
                await nursery.start(self._follower.run)
            if self._controller_server is not None:
                nursery.start_soon(self._controller_server.run, self._stop_serving)
            if self.controller is not None:
                nursery.start_soon(self.controller.run)
            if self._config.roles.is_broker:
                self.lifecycle = self._new_lifecycle(wait_for_directories)
                await self.lifecycle.register()
                await nursery.start(self._markers.run)
                if isinstance(self.producer_ids, ProducerIdBlocks):
                    nursery.start_soon(self.producer_ids.run)
                take_roles()
                self.assignments.check_all()
                nursery.start_soon(self.assignments.run)
                nursery.start_soon(self.replication.run)
                nursery.start_soon(self.lifecycle.run)
            task_status.started()

    def _new_lifecycle(self, wait_for_directories: Callable[[], Awaitable[None]]) -> BrokerLifecycle:
        advertised = advertised_endpoints(self._config, self._services.serving.listening)
        lifecycle = BrokerLifecycle(
            self.link,
            self._metadata,
            self._config,
            advertised,
            directories=self._logs.health,
            wait_for_directories=wait_for_directories,
            is_controller=self.controller is not None,
        )
        lifecycle.log_dirs = [home.directory_id for home in self._logs.directories if home.directory_id]
        return lifecycle

    async def wait_until_unfenced(self) -> None:
        """Wait until clients may see this broker; return at once on a node that is no broker."""
        if self.lifecycle is not None:
            await self.lifecycle.wait_until_unfenced()

    async def leave(self) -> None:
        """Hand the leadership of partitions to other brokers, before this node stops serving."""
        others = any(node_id != self._config.node_id for node_id in self._metadata.broker_ids)
        if self.lifecycle is not None and others and self._config.controlled_shutdown_enable:
            await self.lifecycle.leave(SHUTDOWN_S)
        self._stop_serving.set()


def raise_again(code: ErrorCode, message: str | None) -> NoReturn:
    """Raise a refusal again. The exception itself would keep all frames that it has passed."""
    raise BrokerError(code, message)


def advertised_endpoints(config: BrokerConfig, listening: Sequence[Endpoint]) -> list[Endpoint]:
    """Return the endpoints at which other nodes and clients reach this broker, by listener.

    An endpoint is the one of ``advertised.listeners``, else the bound address, with the machine's host name for a
    listener on all interfaces.
    """
    told = {
        endpoint.name: endpoint for endpoint in parse_endpoints("advertised.listeners", config.advertised_listeners)
    }
    found = []
    for bound in listening:
        host = socket.gethostname() if bound.host in ANY_ADDRESS else bound.host
        found.append(told.get(bound.name, Endpoint(bound.name, host, bound.port)))
    return found


def refuse_all(request: Message, key: AnyApiKey, version: int, error: BrokerError) -> Message:
    """Return an answer that refuses each entry of a request.

    Raises ``error`` itself if the response has a top-level error field.
    """
    cls = response_class(key)
    if has_top_level_error(cls, version):
        raise error
    return refused(request, cls, version, error.code, error.message)


def _has_cluster_id(path: str) -> bool:
    return (Path(path) / META_PROPERTIES).exists() or (Path(path) / f"{CLUSTER_METADATA}-0").exists()
