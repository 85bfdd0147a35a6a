"""The metadata of a cluster (brokers, topics, leaders, coordinators) and the connections to its brokers."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from random import Random
from typing import TypeVar
from uuid import UUID

import trio

from ...protocol.apis import ApiKey
from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ...protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseTopic
from ...protocol.schema import NO_UUID, Message
from ...protocol.spoken_versions import SpokenVersions
from ..config import ClientConfig
from ..errors import AuthenticationFailedError, ClosedError, ConfigError, ConnectionLostError
from ..metrics import Metrics
from .backoff import backoff_seconds
from .connection import Connection
from .dialling import Outages, open_stream

logger = logging.getLogger(__name__)

Response = TypeVar("Response", bound=Message)

DEFAULT_PORT = 9092
SERVER = re.compile(
    r"(?:[\w%.-]+://)?"
    r"(?:\[(?P<bracketed>[\w%.:-]+)\]|(?P<host>[\w%.-]+|\w*:[\w:]*:[\w%.-]+(?=:)))"
    r"(?::(?P<port>[0-9]{1,5}))?"
)
"""One bootstrap server; an IPv6 address without brackets has a port."""
LAST_NODE_ID = 2**31 - 1
"""LAST_NODE_ID - n is the node id of the connection to broker n as a group's coordinator, as in Kafka's client."""


class CoordinatorType(IntEnum):
    """The kind of a coordinator: the key_type of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


@dataclass(slots=True)
class PartitionMetadata:
    """The replicas of a partition; `leader` is None while the partition has no leader."""

    index: int
    leader: int | None
    leader_epoch: int
    replicas: list[int]
    in_sync_replicas: list[int]


@dataclass(slots=True)
class TopicMetadata:
    """A topic as the last Metadata answer described it; `partitions` are in order of their index."""

    name: str
    topic_id: UUID = NO_UUID
    is_internal: bool = False
    partitions: list[PartitionMetadata] = field(default_factory=list)

    @property
    def leaders(self) -> list[int | None]:
        """The leader of each partition, by index."""
        return [partition.leader for partition in self.partitions]


class _Broker:
    """The connection to one broker: at most one, and the time before which no new attempt is made."""

    __slots__ = (
        "connection",
        "dialling",
        "failure_type",
        "failures",
        "host",
        "is_gone",
        "last_failure",
        "not_before",
        "port",
    )

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self.connection: Connection | None = None
        self.dialling = trio.Lock()
        self.failures = 0
        self.last_failure = ""
        self.failure_type: type[ConnectionLostError] = ConnectionLostError
        self.not_before = 0.0
        self.is_gone = False
        """Whether the cluster no longer has the broker at this address; a connection that is being made then ends."""

    @property
    def address(self) -> str:
        """Host and port, as in `bootstrap.servers`."""
        return f"{self.host}:{self.port}"

    def leave(self, reason: str) -> None:
        """End the connection, also while it is being made."""
        self.is_gone = True
        if self.connection is not None:
            self.connection.close(reason)


class Cluster:
    """The brokers and topics of a cluster, shared by the parts of one client.

    `run` holds the connections and must be started first.
    """

    def __init__(self, bootstrap_servers: str | Iterable[str], config: ClientConfig, metrics: Metrics) -> None:
        self.config = config
        self.metrics = metrics
        self.topics: dict[str, TopicMetadata] = {}
        self.cluster_id: str | None = None
        self.controller_id = -1
        self._random = Random()
        self._bootstrap = parse_servers(bootstrap_servers)
        self._brokers: dict[int, _Broker] = {}
        self._seed = [_Broker(host, port) for host, port in self._bootstrap]
        self._coordinators: dict[tuple[CoordinatorType, str], int] = {}
        self._ways_to_coordinators: dict[int, _Broker] = {}
        self._outages = Outages()
        self._metadata_failing_since: float | None = None
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Hold the connections until cancelled."""
        try:
            async with trio.open_nursery() as self._nursery:
                task_status.started()
                await trio.sleep_forever()
        finally:
            self._nursery = None

    # --- connections ---

    @property
    def brokers(self) -> dict[int, tuple[str, int]]:
        """Host and port of each known broker, by node id."""
        return {node: (broker.host, broker.port) for node, broker in self._brokers.items()}

    def established(self, node: int) -> Connection | None:
        """Return the live connection to a broker, or None if there is none now."""
        broker = self._brokers.get(node)
        if broker is None or broker.connection is None or broker.connection.is_closed:
            return None
        return broker.connection

    async def connection(self, node: int) -> Connection:
        """Return a live connection to a broker; make one if necessary.

        Raises ConnectionLostError if the broker is unknown, cannot be reached, or must not be tried for
        `reconnect.backoff.ms` after a failure.
        """
        broker = self._brokers.get(node) or self._ways_to_coordinators.get(node)
        if broker is None:
            raise ConnectionLostError(f"no broker with node id {node} is known")
        return await self._connected(broker, f"node-{node}")

    async def any_connection(self) -> Connection:
        """Return a connection to any broker: the least loaded one, else the first broker that can be reached.

        Raises ConnectionLostError that names the last failure when no broker can be reached; AuthenticationFailedError
        if one of them refused the client.
        """
        live = [b.connection for b in self._all_brokers() if b.connection is not None and not b.connection.is_closed]
        if live:
            return min(live, key=lambda connection: connection.in_flight_count)
        known = list(self._brokers.items())
        self._random.shuffle(known)
        candidates = [(broker, f"node-{node}") for node, broker in known]
        candidates += [(broker, broker.address) for broker in self._seed]
        reasons = []
        failure_type = ConnectionLostError
        for broker, name in candidates:
            try:
                return await self._connected(broker, name)
            except ConnectionLostError as failure:
                reasons.append(str(failure))
                if isinstance(failure, AuthenticationFailedError):
                    failure_type = AuthenticationFailedError
        raise failure_type("; ".join(dict.fromkeys(reasons)) or "no bootstrap servers")

    def _all_brokers(self) -> Iterable[_Broker]:
        yield from self._brokers.values()
        yield from self._seed

    async def _connected(self, broker: _Broker, name: str) -> Connection:
        async with broker.dialling:
            if broker.connection is not None and not broker.connection.is_closed:
                return broker.connection
            if broker.is_gone:
                raise ConnectionLostError(f"{name} is no longer at {broker.address}")
            now = trio.current_time()
            if now < broker.not_before:
                rest_ms = (broker.not_before - now) * 1000
                raise broker.failure_type(f"{broker.last_failure or name} (next attempt in {rest_ms:.0f} ms)")
            try:
                connection = await self._dial(broker, name)
            except ConnectionLostError as failure:
                self._note_failure(broker, failure, now)
                raise
            broker.failures = 0
            self._outages.ended(broker.address)
            if broker.is_gone:
                connection.close()
                raise ConnectionLostError(f"{name} is no longer at {broker.address}")
            broker.connection = connection
            return connection

    def _note_failure(self, broker: _Broker, failure: ConnectionLostError, began_at: float) -> None:
        broker.failures += 1
        broker.last_failure = str(failure)
        broker.failure_type = type(failure)
        self._outages.failed(broker.address, failure, began_at)
        broker.not_before = trio.current_time() + backoff_seconds(
            broker.failures, self.config.reconnect_backoff_ms, self.config.reconnect_backoff_max_ms, self._random
        )

    async def _dial(self, broker: _Broker, name: str) -> Connection:
        if self._nursery is None:
            raise ClosedError("the client is not open: use it inside its `async with` block")
        stream = await open_stream(broker.host, broker.port, self.config)
        connection = Connection(stream, name, self.config, self.metrics)
        try:
            await self._nursery.start(connection.run)
        except BaseException:
            # Usually `run` has closed the connection; not if `run` was never started.
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(stream)
            raise
        return connection

    async def request(self, node: int, message: Message, answer: type[Response], **options: int) -> Response:
        """Send a request to the given broker; see `Connection.request`."""
        connection = await self.connection(node)
        return await connection.request(message, answer, **options)

    async def request_any(self, message: Message, answer: type[Response], **options: int) -> Response:
        """Send a request that every broker can answer."""
        connection = await self.any_connection()
        return await connection.request(message, answer, **options)

    # --- metadata ---

    async def refresh(self, topics: Iterable[str] | None, *, allow_auto_create: bool = False) -> MetadataResponse:
        """Fetch the metadata of these topics (None: all), and store the answer.

        Raises ConnectionLostError or BrokerError.
        """
        began_at = trio.current_time()
        try:
            answer = await self._ask_for_metadata(topics, allow_auto_create)
        except (ConnectionLostError, BrokerError):
            self._note_metadata_failure(began_at)
            raise
        self._metadata_failing_since = None
        self._learn(answer)
        return answer

    async def _ask_for_metadata(self, topics: Iterable[str] | None, allow_auto_create: bool) -> MetadataResponse:
        connection = await self.any_connection()
        version = connection.versions.version(ApiKey.METADATA)
        request = MetadataRequest(
            topics=_wanted(topics, version),
            # Before version 4 the broker alone decides whether a Metadata request creates topics.
            allow_auto_topic_creation=allow_auto_create or version < 4,
        )
        answer = await connection.request(request, MetadataResponse, version=version)
        if answer.error_code == ErrorCode.REBOOTSTRAP_REQUIRED and self.config.rebootstraps:
            self._rebootstrap("a broker asks for it")
            raise ConnectionLostError(f"{connection.node}: {connection.close_reason}")
        if answer.error_code:
            raise BrokerError(ErrorCode(answer.error_code), "Metadata")
        return answer

    def _note_metadata_failure(self, began_at: float) -> None:
        """Return to the bootstrap servers if metadata has failed for `metadata.recovery.rebootstrap.trigger.ms`."""
        since = self._metadata_failing_since
        if since is None:
            since = self._metadata_failing_since = began_at
        limit_ms = self.config.metadata_recovery_rebootstrap_trigger_ms
        if self.config.rebootstraps and trio.current_time() - since >= limit_ms / 1000:
            self._metadata_failing_since = None
            self._rebootstrap(f"no metadata for {limit_ms} ms")

    def _rebootstrap(self, why: str) -> None:
        """Forget all brokers, so that the next connection is made to a bootstrap server (KIP-1102).

        Otherwise the client would ask brokers for ever that accept connections without answering, as an old cluster
        behind reused addresses may: bootstrap servers are used only where no broker can be reached.
        """
        logger.warning("returning to the bootstrap servers: %s", why)
        for broker in (*self._brokers.values(), *self._ways_to_coordinators.values()):
            broker.leave("the client goes back to its bootstrap servers")
        for seed in self._seed:
            if seed.connection is not None:
                seed.connection.close("the client goes back to its bootstrap servers")
        self._brokers.clear()
        self._ways_to_coordinators.clear()
        self._coordinators.clear()

    def _learn(self, answer: MetadataResponse) -> None:
        if answer.cluster_id is not None:
            self.cluster_id = answer.cluster_id
        self.controller_id = answer.controller_id
        alive = {broker.node_id for broker in answer.brokers}
        for described in answer.brokers:
            self._learn_broker(described.node_id, described.host, described.port)
        for gone in [node for node in self._brokers if node not in alive and alive]:
            self._brokers.pop(gone).leave("the broker has left the cluster")
        for topic in answer.topics:
            if topic.name is None:
                continue
            if topic.error_code in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE) and topic.partitions:
                self.topics[topic.name] = _topic_metadata(topic, self.topics.get(topic.name))
            elif topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self.topics.pop(topic.name, None)

    def _learn_broker(self, node: int, host: str, port: int) -> None:
        host, port = self.config.broker_addresses.get(node, (host, port))
        known = self._brokers.get(node)
        if known is None or (known.host, known.port) != (host, port):
            if known is not None:
                known.leave("the broker has moved")
            self._brokers[node] = _Broker(host, port)

    def take_leader_hint(
        self, topic: str, partition: int, leader: int, leader_epoch: int, endpoints: Mapping[int, tuple[str, int]]
    ) -> bool:
        """Store the leader of a partition that a refusal names (KIP-951); `endpoints`: hosts and ports by node id.

        Returns whether the leader is new. It is not if the stored leader epoch is as late, or if the answer and the
        metadata have no address of the leader (Kafka's `Metadata.updatePartitionLeadership`).
        """
        known = self.topics.get(topic)
        if known is None or not 0 <= partition < len(known.partitions) or leader < 0:
            return False
        if leader_epoch <= known.partitions[partition].leader_epoch:
            return False
        if leader in endpoints:
            self._learn_broker(leader, *endpoints[leader])
        elif leader not in self._brokers:
            return False
        known.partitions[partition] = replace(known.partitions[partition], leader=leader, leader_epoch=leader_epoch)
        return True

    def leader(self, topic: str, partition: int) -> int | None:
        """Return the partition's leader by the last metadata, or None."""
        metadata = self.topics.get(topic)
        if metadata is None or not 0 <= partition < len(metadata.partitions):
            return None
        return metadata.partitions[partition].leader

    # --- coordinators ---

    async def coordinator(self, kind: CoordinatorType, key: str) -> int:
        """Return the node id of the broker that coordinates a group or a transactional id.

        The coordinator of a group has a node id and a connection of its own: a broker answers in order, and a
        heartbeat must not wait behind a fetch, nor a fetch behind a JoinGroup. Raises ConnectionLostError, or
        BrokerError (COORDINATOR_NOT_AVAILABLE while there is none).
        """
        node = self._coordinators.get((kind, key))
        if node is not None:
            return node
        connection = await self.any_connection()
        request = FindCoordinatorRequest(key=key, key_type=kind)
        answer = await connection.request(request, FindCoordinatorResponse)
        if answer.error_code:
            raise BrokerError(ErrorCode(answer.error_code), answer.error_message)
        node = answer.node_id
        address = self.config.broker_addresses.get(node, (answer.host, answer.port))
        if kind is CoordinatorType.GROUP:
            node = LAST_NODE_ID - answer.node_id
            way = self._ways_to_coordinators.get(node)
            if way is None or (way.host, way.port) != address:
                if way is not None:
                    way.leave("the coordinator has moved")
                self._ways_to_coordinators[node] = _Broker(*address)
        elif node not in self._brokers:
            self._brokers[node] = _Broker(*address)
        self._coordinators[kind, key] = node
        return node

    def forget_coordinator(self, kind: CoordinatorType, key: str) -> None:
        """Forget the coordinator, so that the next call finds it again, after NOT_COORDINATOR or a lost connection."""
        self._coordinators.pop((kind, key), None)

    async def versions(self) -> SpokenVersions:
        """Return the versions of a broker of the cluster."""
        return (await self.any_connection()).versions


def parse_servers(servers: str | Iterable[str]) -> list[tuple[str, int]]:
    """Return the hosts and ports in "host:port,[::1]:9092"; the port defaults to 9092. Raises ConfigError.

    As in Kafka (`Utils.HOST_PORT_PATTERN`), an item may begin with the name of a listener: "PLAINTEXT://host:9092".
    """
    if not isinstance(servers, Iterable) or isinstance(servers, bytes):
        raise ConfigError(f"bootstrap_servers must be HOST:PORT[,HOST:PORT...], not {servers!r}")
    items = servers.split(",") if isinstance(servers, str) else list(servers)
    if not items:
        raise ConfigError("bootstrap_servers is empty")
    addresses = []
    for item in items:
        found = SERVER.fullmatch(item.strip()) if isinstance(item, str) else None
        port = DEFAULT_PORT if found is None or found["port"] is None else int(found["port"])
        if found is None or not 0 < port < 65536:
            raise ConfigError(f"bootstrap_servers must be HOST:PORT[,HOST:PORT...], not {item!r}")
        addresses.append((found["bracketed"] or found["host"], port))
    return addresses


def _wanted(topics: Iterable[str] | None, version: int) -> list[MetadataRequestTopic] | None:
    if topics is None:
        # In version 0 an empty list means all topics.
        return None if version >= 1 else []
    return [MetadataRequestTopic(name=topic) for topic in topics]


def _topic_metadata(topic: MetadataResponseTopic, known: TopicMetadata | None) -> TopicMetadata:
    """Convert an answer to a topic's metadata; partitions with a later leader epoch in `known` are taken from there.

    Answers of several brokers arrive in any order, and a broker may be behind (KIP-320; Kafka's
    `Metadata.updateLatestMetadata`). Without topic ids (brokers before 2.8) the answer counts: the topic may have
    been deleted and created again, so that its epochs begin at 0 again.
    """
    is_same = known is not None and topic.topic_id == known.topic_id != NO_UUID
    before = {partition.index: partition for partition in known.partitions} if known is not None and is_same else {}
    partitions = []
    for described in sorted(topic.partitions, key=lambda partition: partition.partition_index):
        partition = PartitionMetadata(
            index=described.partition_index,
            leader=described.leader_id if described.leader_id >= 0 else None,
            leader_epoch=described.leader_epoch,
            replicas=described.replica_nodes,
            in_sync_replicas=described.isr_nodes,
        )
        newer = before.get(partition.index)
        is_older = newer is not None and 0 <= partition.leader_epoch < newer.leader_epoch
        partitions.append(newer if newer is not None and is_older else partition)
    return TopicMetadata(topic.name or "", topic.topic_id, topic.is_internal, partitions)
