"""What the metadata log says, as values: topics, configurations, quotas, credentials, features.

The state is changed by records only (:meth:`ClusterState.apply`), the same at replay, at a change and, later, on a
broker that follows another's log. :meth:`ClusterState.records` is the way back: the shortest log with this outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, TypeAlias
from uuid import UUID

from ...protocol.internal_topics import is_internal
from ...protocol.messages.cluster_metadata_records import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntity,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)
from ...protocol.schema import NO_UUID, Message

NO_LEADER = -1
UNASSIGNED = NO_UUID
"""The directory of a replica whose broker has not told yet which it is in (Kafka `DirectoryId`)."""
NO_CHANGE = -2
"""A PartitionChangeRecord's leader where it keeps the one before (Kafka `LeaderConstants`)."""


class ResourceType(IntEnum):
    """What a configuration belongs to (Kafka `ConfigResource.Type`)."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


Entity: TypeAlias = tuple[tuple[str, str | None], ...]
"""Whom a quota binds: (type, name) pairs in the order of their types; a name of None is the type's default."""


@dataclass(slots=True)
class BrokerState:
    """One registered broker (KIP-631). `epoch` is the offset of its registration, and grows with each of its lives."""

    node_id: int
    epoch: int
    incarnation_id: UUID
    endpoints: dict[str, tuple[str, int]]
    """Host and port by listener name."""
    rack: str | None = None
    is_fenced: bool = True
    """Whether it is kept from leading and from being seen by clients, as it is dead or not yet ready."""
    in_controlled_shutdown: bool = False
    log_dirs: list[UUID] = field(default_factory=list)

    @property
    def is_active(self) -> bool:
        """Whether it may lead and be in sync: not fenced, not about to stop (Kafka `ClusterControlManager`)."""
        return not self.is_fenced and not self.in_controlled_shutdown


@dataclass(slots=True)
class PartitionState:
    """One partition as the cluster knows it; broker ids in `leader`, `replicas` and `isr`, -1 for no leader."""

    index: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    partition_epoch: int = 0
    adding: list[int] = field(default_factory=list)
    """Replicas that a reassignment under way adds; they are among `replicas` already."""
    removing: list[int] = field(default_factory=list)
    """Replicas that it removes once the others are in sync; they are among `replicas` still."""
    directories: list[UUID] = field(default_factory=list)
    """Ids of the log directories that the replicas are in, in the order of `replicas` (KIP-858)."""

    def __post_init__(self) -> None:
        if len(self.directories) != len(self.replicas):
            self.directories = [UNASSIGNED] * len(self.replicas)

    def directory_of(self, node_id: int) -> UUID:
        """The log directory of a broker's replica; UNASSIGNED if it is not known, or there is no such replica."""
        if node_id not in self.replicas:
            return UNASSIGNED
        return self.directories[self.replicas.index(node_id)]


@dataclass(slots=True)
class TopicState:
    """One topic: partitions in order of their index, and the configuration that is its own."""

    name: str
    topic_id: UUID
    partitions: list[PartitionState] = field(default_factory=list)
    configs: dict[str, str] = field(default_factory=dict)

    @property
    def is_internal(self) -> bool:
        """Whether the broker keeps its own state in it."""
        return is_internal(self.name)


class ClusterState:
    """The outcome of a metadata log."""

    def __init__(self) -> None:
        self.brokers: dict[int, BrokerState] = {}
        """Registered brokers; empty as long as the node is a cluster of its own."""
        self.topics: dict[str, TopicState] = {}
        self.topics_by_id: dict[UUID, TopicState] = {}
        self.configs: dict[tuple[ResourceType, str], dict[str, str]] = {}
        """Configurations of what is not a topic; brokers' by number, the cluster's default under the empty name."""
        self.quotas: dict[Entity, dict[str, float]] = {}
        self.scram: dict[tuple[str, int], UserScramCredentialRecord] = {}
        self.features: dict[str, int] = {}
        self.next_producer_id = 0
        self.removed_topic_ids: set[UUID] = set()
        """Topics that were deleted since the last snapshot: their directories may have outlived a crash."""
        self._early_configs: dict[str, dict[str, str]] = {}
        self._appliers: dict[type[Message], Callable[[Any], None]] = {
            RegisterBrokerRecord: self._register_broker,
            UnregisterBrokerRecord: self._unregister_broker,
            BrokerRegistrationChangeRecord: self._change_broker,
            TopicRecord: self._add_topic,
            PartitionRecord: self._add_partition,
            PartitionChangeRecord: self._change_partition,
            RemoveTopicRecord: self._remove_topic,
            ConfigRecord: self._set_config,
            ClientQuotaRecord: self._set_quota,
            UserScramCredentialRecord: self._set_scram,
            RemoveUserScramCredentialRecord: self._remove_scram,
            FeatureLevelRecord: self._set_feature,
            ProducerIdsRecord: self._set_producer_ids,
        }

    def apply(self, record: Message) -> None:
        """Take one record; what concerns nothing known here is passed over."""
        applier = self._appliers.get(type(record))
        if applier is not None:
            applier(record)

    def records(self) -> Iterator[Message]:
        """Records that make this state out of nothing."""
        for name, level in self.features.items():
            yield FeatureLevelRecord(name=name, feature_level=level)
        if self.next_producer_id:
            yield ProducerIdsRecord(next_producer_id=self.next_producer_id)
        for broker in self.brokers.values():
            yield broker_record(broker)
        for topic in self.topics.values():
            yield from topic_records(topic)
        for (kind, resource), configs in self.configs.items():
            for name, value in configs.items():
                yield ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)
        for entity, values in self.quotas.items():
            for key, rate in values.items():
                yield ClientQuotaRecord(entity=quota_entity(entity), key=key, value=rate)
        yield from self.scram.values()

    def configs_of(self, kind: ResourceType, name: str) -> dict[str, str]:
        """The dynamic configuration of a resource, not to be changed; empty if it has none."""
        if kind is ResourceType.TOPIC:
            topic = self.topics.get(name)
            return topic.configs if topic else {}
        return self.configs.get((kind, name), {})

    def holds(self, partition: PartitionState, node_id: int) -> bool:
        """Whether a broker's replica may have what was replicated: its directory is not known to be lost or failed."""
        directory, broker = partition.directory_of(node_id), self.brokers.get(node_id)
        return directory == UNASSIGNED or broker is None or not broker.log_dirs or directory in broker.log_dirs

    def default_directory(self, node_id: int) -> UUID:
        """Where a new replica of a broker will be: UNASSIGNED unless it has one log directory only."""
        broker = self.brokers.get(node_id)
        return broker.log_dirs[0] if broker is not None and len(broker.log_dirs) == 1 else UNASSIGNED

    def _register_broker(self, record: RegisterBrokerRecord) -> None:
        self.brokers[record.broker_id] = BrokerState(
            record.broker_id,
            record.broker_epoch,
            record.incarnation_id,
            {end_point.name: (end_point.host, end_point.port) for end_point in record.end_points},
            record.rack,
            record.fenced,
            record.in_controlled_shutdown,
            record.log_dirs,
        )

    def _unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        self.brokers.pop(record.broker_id, None)

    def _change_broker(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self.brokers.get(record.broker_id)
        if broker is None or broker.epoch != record.broker_epoch:
            return
        if record.fenced:
            broker.is_fenced = record.fenced > 0
        if record.log_dirs:
            broker.log_dirs = record.log_dirs
        if record.in_controlled_shutdown:
            broker.in_controlled_shutdown = record.in_controlled_shutdown > 0

    def _add_topic(self, record: TopicRecord) -> None:
        topic = TopicState(record.name, record.topic_id)
        topic.configs.update(self._early_configs.pop(record.name, {}))
        self.topics[topic.name] = self.topics_by_id[topic.topic_id] = topic

    def _add_partition(self, record: PartitionRecord) -> None:
        topic = self.topics_by_id.get(record.topic_id)
        if topic is None:
            return
        partition = PartitionState(
            record.partition_id,
            record.leader,
            record.leader_epoch,
            record.replicas,
            record.isr,
            record.partition_epoch,
            record.adding_replicas,
            record.removing_replicas,
            record.directories,
        )
        if record.partition_id == len(topic.partitions):
            topic.partitions.append(partition)
        else:
            kept = [known for known in topic.partitions if known.index != record.partition_id]
            topic.partitions[:] = sorted([*kept, partition], key=lambda known: known.index)

    def _change_partition(self, record: PartitionChangeRecord) -> None:
        topic = self.topics_by_id.get(record.topic_id)
        partition = next((p for p in topic.partitions if p.index == record.partition_id), None) if topic else None
        if partition is None:
            return
        partition.partition_epoch += 1
        if record.isr is not None:
            partition.isr = record.isr
        if record.replicas is not None:
            known = dict(zip(partition.replicas, partition.directories, strict=True))
            partition.replicas = record.replicas
            partition.directories = [known.get(replica, UNASSIGNED) for replica in record.replicas]
        if record.directories is not None and len(record.directories) == len(partition.replicas):
            partition.directories = record.directories
        if record.adding_replicas is not None:
            partition.adding = record.adding_replicas
        if record.removing_replicas is not None:
            partition.removing = record.removing_replicas
        if record.leader != NO_CHANGE:
            partition.leader = record.leader
            partition.leader_epoch += 1

    def _remove_topic(self, record: RemoveTopicRecord) -> None:
        self.removed_topic_ids.add(record.topic_id)
        topic = self.topics_by_id.pop(record.topic_id, None)
        if topic is not None and self.topics.get(topic.name) is topic:
            del self.topics[topic.name]

    def _set_config(self, record: ConfigRecord) -> None:
        configs = self._configs_to_change(record.resource_type, record.resource_name)
        if record.value is None:
            configs.pop(record.name, None)
        else:
            configs[record.name] = record.value

    def _configs_to_change(self, resource_type: int, resource: str) -> dict[str, str]:
        if resource_type == ResourceType.TOPIC:
            topic = self.topics.get(resource)
            # A snapshot of Kafka's lists configurations and topics each on their own.
            return topic.configs if topic else self._early_configs.setdefault(resource, {})
        known = set(ResourceType)
        kind = ResourceType(resource_type) if resource_type in known else ResourceType.UNKNOWN
        return self.configs.setdefault((kind, resource), {})

    def _set_quota(self, record: ClientQuotaRecord) -> None:
        entity = tuple(
            sorted(((part.entity_type, part.entity_name) for part in record.entity), key=lambda pair: pair[0])
        )
        values = self.quotas.setdefault(entity, {})
        if record.remove:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
        if not values:
            del self.quotas[entity]

    def _set_scram(self, record: UserScramCredentialRecord) -> None:
        self.scram[record.name, record.mechanism] = record

    def _remove_scram(self, record: RemoveUserScramCredentialRecord) -> None:
        self.scram.pop((record.name, record.mechanism), None)

    def _set_feature(self, record: FeatureLevelRecord) -> None:
        self.features[record.name] = record.feature_level

    def _set_producer_ids(self, record: ProducerIdsRecord) -> None:
        self.next_producer_id = record.next_producer_id


def broker_record(broker: BrokerState) -> RegisterBrokerRecord:
    """The record that registers a broker as it is."""
    return RegisterBrokerRecord(
        broker_id=broker.node_id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[BrokerEndpoint(name=name, host=host, port=port) for name, (host, port) in broker.endpoints.items()],
        rack=broker.rack,
        fenced=broker.is_fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=broker.log_dirs,
    )


def topic_records(topic: TopicState) -> Iterator[Message]:
    """Records that make a topic, in the order in which Kafka's controller writes them."""
    yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
    for name, value in topic.configs.items():
        yield ConfigRecord(resource_type=ResourceType.TOPIC, resource_name=topic.name, name=name, value=value)
    for partition in topic.partitions:
        yield partition_record(topic.topic_id, partition)


def partition_record(topic_id: UUID, partition: PartitionState) -> PartitionRecord:
    """The record that makes one partition."""
    return PartitionRecord(
        partition_id=partition.index,
        topic_id=topic_id,
        replicas=partition.replicas,
        isr=partition.isr,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        adding_replicas=partition.adding,
        removing_replicas=partition.removing,
        directories=partition.directories,
    )


def quota_entity(entity: Entity) -> list[QuotaEntity]:
    """An entity as records carry it."""
    return [QuotaEntity(entity_type=kind, entity_name=name) for kind, name in entity]
