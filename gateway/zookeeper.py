"""The upstream cluster behind ZooKeeper's nodes, as clients of the gateway see it.

The metadata is what Metadata answers through this gateway, asked at the interval of
`gregor.gateway.metadata.refresh.ms`; offsets and topics are read and written by requests through it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

import trio

from ..broker.config import BrokerConfig
from ..broker.config.listener_rules import ANY_ADDRESS
from ..broker.config.listeners import Endpoint
from ..broker.server.client_connection import ClientConnection
from ..broker.zookeeper.kafka_requests import KafkaRequests
from ..protocol.apis import ApiKey
from ..protocol.errors import BrokerError, ErrorCode
from ..protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from ..zookeeper.kafka_cluster import BrokerAddress, ClientAddress, PartitionView, TopicView
from .addresses import Addresses
from .responder import Responder
from .sessions import Sessions

logger = logging.getLogger(__name__)

METADATA_VERSION = 2
"""The first version with the cluster's id, which Kafka has answered since 0.10.1."""
OWN = "127.0.0.1"


class UpstreamCluster(KafkaRequests):
    """A `zookeeper.kafka_cluster.KafkaCluster` behind a gateway; `run` keeps its metadata up to date."""

    def __init__(
        self, responder: Responder, sessions: Sessions, addresses: Addresses, endpoint: Endpoint, config: BrokerConfig
    ) -> None:
        """Use the addresses that clients of `endpoint` get, a bound listener of the gateway."""
        super().__init__(
            responder,
            sessions,
            endpoint,
            timeout_s=config.gregor_zookeeper_request_timeout_ms / 1000,
            # With one address for all brokers, clients do not know the ids that upstream gives replicas.
            places_replicas=not addresses.changes_node_ids,
        )
        self._addresses = addresses
        self._refresh_s = config.gregor_gateway_metadata_refresh_ms / 1000
        host = OWN if endpoint.host in ANY_ADDRESS else endpoint.host
        self._own = ClientAddress(("", 0), (host, endpoint.port))
        self._metadata = MetadataResponse()
        self._topics: dict[str, TopicView] = {}
        self._listeners: list[Callable[[], None]] = []
        self._is_outdated = False
        """Whether the last attempt to get the metadata has failed."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Ask for the metadata again and again until cancelled; report started after the first attempt."""
        await self._try_to_refresh()
        task_status.started()
        while True:
            await trio.sleep(self._refresh_s)
            await self._try_to_refresh()

    @property
    def cluster_id(self) -> str:
        """The id of the upstream cluster, empty while it is unknown."""
        return self._metadata.cluster_id or ""

    @property
    def controller_id(self) -> int:
        """The broker that clients take for the controller; -1 if unknown."""
        return self._metadata.controller_id

    def brokers(self, client: ClientAddress | None) -> Mapping[int, BrokerAddress]:
        """Return the brokers by id, with the addresses that Metadata gives this client."""
        connection = self._as_connected(client or self._own)
        found = {}
        for broker in self._metadata.brokers:
            address = self._addresses.address(broker.node_id, connection)
            if address is not None:
                found[broker.node_id] = BrokerAddress(*address)
        return found

    def topics(self) -> Mapping[str, TopicView]:
        """Return the topics by name; their configurations are not known here."""
        return self._topics

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call `changed` after each change of the metadata."""
        self._listeners.append(changed)

    async def create_topic(
        self, client: ClientAddress, topic: str, replicas: Sequence[Sequence[int]], configs: Mapping[str, str]
    ) -> None:
        """Create a topic."""
        await super().create_topic(client, topic, replicas, configs)
        await self._try_to_refresh()

    async def add_partitions(
        self, client: ClientAddress, topic: str, count: int, added: Sequence[Sequence[int]]
    ) -> None:
        """Increase a topic's partitions to `count`."""
        await super().add_partitions(client, topic, count, added)
        await self._try_to_refresh()

    async def set_configs(self, client: ClientAddress, topic: str, configs: Mapping[str, str]) -> None:
        """Refuse: as the nodes do not show a configuration, what is written would lack the settings that exist."""
        raise BrokerError(ErrorCode.INVALID_REQUEST, "a gateway's ZooKeeper nodes do not show configurations")

    async def delete_topic(self, client: ClientAddress, topic: str) -> None:
        """Delete a topic."""
        await super().delete_topic(client, topic)
        await self._try_to_refresh()

    async def _try_to_refresh(self) -> None:
        try:
            await self._refresh()
        except BrokerError as error:
            # An outage is reported once, not at each attempt.
            level = logging.DEBUG if self._is_outdated else logging.WARNING
            logger.log(level, "no metadata of the upstream cluster for ZooKeeper's nodes: %s", error)
            self._is_outdated = True

    async def _refresh(self) -> None:
        """Ask for the metadata once. Raises BrokerError."""
        request = MetadataRequest(topics=None)
        answer = await self._ask(self._own, ApiKey.METADATA, METADATA_VERSION, request, MetadataResponse)
        self._is_outdated = False
        topics = {topic.name: _view(topic) for topic in answer.topics if topic.name and not topic.error_code}
        for name, topic in topics.items():
            known = self._topics.get(name)
            if known == topic:
                topics[name] = known
        if topics != self._topics or _cluster(answer) != _cluster(self._metadata):
            self._topics, self._metadata = topics, answer
            for changed in self._listeners:
                changed()

    def _as_connected(self, client: ClientAddress) -> ClientConnection:
        local = client.local[0], self._endpoint.port
        return ClientConnection(client.peer, local, self._endpoint.name, "", trio.Event())


def _cluster(answer: MetadataResponse) -> tuple[str | None, int, list[tuple[int, str, int]]]:
    """Return what an answer says besides topics, in a form that can be compared."""
    brokers = sorted((broker.node_id, broker.host, broker.port) for broker in answer.brokers)
    return answer.cluster_id, answer.controller_id, brokers


def _view(topic: MetadataResponseTopic) -> TopicView:
    partitions = sorted(topic.partitions, key=lambda partition: partition.partition_index)
    return TopicView(
        tuple(
            PartitionView(partition.leader_id, 0, tuple(partition.replica_nodes), tuple(partition.isr_nodes))
            for partition in partitions
        )
    )
