"""The cluster's metadata as this node knows them: its topics and brokers, and who may lead."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages.cluster_metadata_records import DelegationTokenRecord, UserScramCredentialRecord
from ...storage.log.log_config import LogConfig
from ..config import BrokerConfig
from .state import NO_LEADER, BrokerState, ClusterState, PartitionState, ResourceType, TopicState


class ClusterView:
    """A view of the cluster's state with the answers that follow from it (Kafka `MetadataCache`)."""

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        self.node_id = config.node_id
        self.state = ClusterState()
        self.is_alone = config.roles.is_alone
        """Whether the node is alone in its cluster, which no other node can join."""
        self.controller_id = self.node_id if config.roles.controller is None else config.roles.controller.node_id
        """Node id of the controller, -1 while a broker knows only the controller's address."""

    # --- brokers

    @property
    def broker_ids(self) -> list[int]:
        """The brokers that may hold replicas: registered and not fenced, or this one if it is alone."""
        if self.is_alone:
            return [self.node_id]
        brokers = self.state.brokers
        return sorted(node_id for node_id, broker in brokers.items() if not broker.is_fenced)

    @property
    def registered_ids(self) -> list[int]:
        """The brokers that a manual assignment may name: all registered ones, or this one if it is alone."""
        return [self.node_id] if self.is_alone else sorted(self.state.brokers)

    @property
    def has_other_brokers(self) -> bool:
        """Whether another broker is registered, fenced or not."""
        return any(node_id != self.node_id for node_id in self.state.brokers)

    @property
    def controller_id_for_clients(self) -> int:
        """The controller id for clients: always a broker, as each broker forwards requests to the controller."""
        broker = self.state.brokers.get(self.controller_id)
        return self.node_id if broker is None or broker.is_fenced else self.controller_id

    def is_active(self, node_id: int) -> bool:
        """Return whether a broker may lead and be in sync."""
        known = self.state.brokers.get(node_id)
        return node_id == self.node_id if self.is_alone else known is not None and known.is_active

    def may_lead(self, partition: PartitionState) -> Callable[[int], bool]:
        """Return the test which brokers may lead a partition: active ones that have not lost their replica."""
        return lambda node_id: self.is_active(node_id) and self.state.holds(partition, node_id)

    def broker(self, node_id: int) -> BrokerState | None:
        """Return the registered broker with that id, fenced or not; None if there is none."""
        return self.state.brokers.get(node_id)

    # --- topics

    @property
    def topics(self) -> dict[str, TopicState]:
        """The topics by name, not to be changed."""
        return self.state.topics

    def topic(self, name: str) -> TopicState:
        """Return the topic called ``name``. Raises BrokerError UNKNOWN_TOPIC_OR_PARTITION."""
        topic = self.state.topics.get(name)
        if topic is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic

    def topic_by_id(self, topic_id: UUID) -> TopicState | None:
        """Return the topic with this id, None if there is none."""
        return self.state.topics_by_id.get(topic_id)

    def has_partition(self, topic: str, index: int) -> bool:
        """Return whether the cluster has such a partition, on any broker."""
        known = self.state.topics.get(topic)
        return known is not None and 0 <= index < len(known.partitions)

    def leader_of(self, topic: str, index: int) -> int:
        """Return the broker that leads a partition; NO_LEADER if there is no leader or no such partition."""
        return self.state.topics[topic].partitions[index].leader if self.has_partition(topic, index) else NO_LEADER

    def topic_config(self, name: str) -> LogConfig:
        """Return the log settings of a topic: its own configuration over the broker's."""
        topic = self.state.topics.get(name)
        return self.config.log_config(topic.configs if topic else None)

    # --- configurations and credentials

    def configs_of(self, kind: ResourceType, name: str) -> dict[str, str]:
        """Return the dynamic configuration of a resource, not to be changed."""
        return self.state.configs_of(kind, name)

    def scram_credentials(self) -> dict[tuple[str, int], UserScramCredentialRecord]:
        """Return SCRAM credentials by user and mechanism, not to be changed."""
        return self.state.scram

    def delegation_tokens(self) -> dict[str, DelegationTokenRecord]:
        """Return the delegation tokens by id, not to be changed."""
        return self.state.tokens
