"""The Kafka cluster of ZooKeeper's nodes, as a broker knows it (a `zookeeper.kafka_cluster.KafkaCluster`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ...zookeeper.kafka_cluster import BrokerAddress, ClientAddress, PartitionView, TopicView
from ..api.advertised import visible_brokers
from ..api.dispatch import Dispatcher
from ..api.services import Services
from ..config.listener_rules import ANY_ADDRESS
from ..metadata.changes import MetadataChange, PartitionsAdded, PartitionsChanged, TopicConfigChanged, TopicDeleted
from ..metadata.state import TopicState
from .kafka_requests import AskBroker, KafkaRequests, plaintext_endpoint

NOBODY = ("", 0)
"""The address of no client in particular."""


class _PlaintextClient(NamedTuple):
    """A client of ZooKeeper's protocol, as if it had come to the broker's plaintext listener at the same host."""

    services: Services
    listener_name: str
    peer: tuple[str, int]
    local_address: tuple[str, int]


class BrokerCluster(KafkaRequests):
    """A cluster whose metadata is the broker's, and whose requests the broker answers."""

    def __init__(self, services: Services, dispatcher: Dispatcher, ask_broker: AskBroker | None) -> None:
        """Follow the metadata from now on; `ask_broker` asks other brokers, None for a lone broker."""
        self._services = services
        self._metadata = services.metadata
        super().__init__(
            dispatcher,
            services.clients,
            plaintext_endpoint(services.serving.listening, services.config),
            timeout_s=services.config.gregor_zookeeper_request_timeout_ms / 1000,
            ask_broker=ask_broker,
            other_brokers=self._brokers_with_groups,
        )
        self._topics: dict[str, TopicView] = {}
        self._changed_topics = set(self._metadata.topics)
        self._listeners: list[Callable[[], None]] = []
        self._metadata.subscribe(self._follow)

    @property
    def cluster_id(self) -> str:
        """The id of the cluster."""
        return self._metadata.cluster_id

    @property
    def controller_id(self) -> int:
        """The broker that clients take for the controller."""
        return self._metadata.controller_id_for_clients

    def brokers(self, client: ClientAddress | None) -> Mapping[int, BrokerAddress]:
        """Return the brokers by id, with the addresses that Metadata gives clients of the same listener."""
        name, host, port = self._endpoint.name, self._endpoint.host, self._endpoint.port
        if client is None:
            client = ClientAddress(NOBODY, ("localhost" if host in ANY_ADDRESS else host, port))
        found = visible_brokers(_PlaintextClient(self._services, name, client.peer, (client.local[0], port)))
        return {broker.node_id: BrokerAddress(broker.host, broker.port) for broker in found}

    def topics(self) -> Mapping[str, TopicView]:
        """Return the topics by name; a topic that has not changed is the same object as before."""
        for name in self._changed_topics:
            topic = self._metadata.topics.get(name)
            if topic is None:
                self._topics.pop(name, None)
            else:
                self._topics[name] = _view(topic)
        self._changed_topics.clear()
        return self._topics

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call `changed` after each change of the metadata."""
        self._listeners.append(changed)

    def _brokers_with_groups(self) -> list[int]:
        """Return the brokers whose groups are listed too: none with an authorizer, as they would list all groups."""
        if self._services.config.authorizer_class_name:
            return []
        return [node_id for node_id in self._metadata.broker_ids if node_id != self._metadata.node_id]

    def _follow(self, change: MetadataChange) -> None:
        if isinstance(change, PartitionsAdded | PartitionsChanged | TopicConfigChanged | TopicDeleted):
            self._changed_topics.add(change.topic.name)
        for changed in self._listeners:
            changed()


def _view(topic: TopicState) -> TopicView:
    partitions = tuple(
        PartitionView(partition.leader, partition.leader_epoch, tuple(partition.replicas), tuple(partition.isr))
        for partition in topic.partitions
    )
    return TopicView(partitions, tuple(sorted(topic.configs.items())))
