"""The state of the metadata log: topics, configurations, quotas, credentials, ACLs, features.

Only records change the state (:meth:`ClusterState.apply`): at replay, at a change, and on a broker that follows the
controller's log. :meth:`ClusterState.records` is the inverse: the shortest log with this state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import count
from typing import Any, TypeAlias
from uuid import UUID

from ...protocol.internal_topics import is_internal
from ...protocol.messages.cluster_metadata_records import (
    AccessControlEntryRecord,
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntity,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)
from ...protocol.schema import NO_UUID, Message

NO_LEADER = -1
UNASSIGNED = NO_UUID
"""The directory of a replica whose broker has not reported it yet (Kafka `DirectoryId`)."""
NO_CHANGE = -2
"""The leader in a PartitionChangeRecord that keeps the present leader (Kafka `LeaderConstants`)."""


class ResourceType(IntEnum):
    """A type of resource that has a configuration (Kafka `ConfigResource.Type`)."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


Entity: TypeAlias = tuple[tuple[str, str | None], ...]
"""The entity of a quota: (type, name) pairs in the order of their types; a name of None is the type's default."""


@dataclass(slots=True)
class BrokerState:
    """A registered broker (KIP-631). `epoch` is the offset of its registration, and grows with each restart."""

    node_id: int
    epoch: int
    incarnation_id: UUID
    endpoints: dict[str, tuple[str, int]]
    """Host and port by listener name."""
    rack: str | None = None
    is_fenced: bool = True
    """Whether the broker cannot lead and clients do not see it, as it has failed or is not ready yet."""
    in_controlled_shutdown: bool = False
    log_dirs: list[UUID] = field(default_factory=list)

    @property
    def is_active(self) -> bool:
        """Whether the broker may lead and be in sync: not fenced, not in shutdown (Kafka `ClusterControlManager`)."""
        return not self.is_fenced and not self.in_controlled_shutdown


@dataclass(slots=True)
class PartitionState:
    """A partition's state in the cluster; broker ids in `leader`, `replicas` and `isr`, -1 for no leader."""

    index: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    partition_epoch: int = 0
    adding: list[int] = field(default_factory=list)
    """Replicas that the present reassignment adds; `replicas` already includes them."""
    removing: list[int] = field(default_factory=list)
    """Replicas that the reassignment removes once the others are in sync; `replicas` still includes them."""
    directories: list[UUID] = field(default_factory=list)
    """Ids of the replicas' log directories, in the order of `replicas` (KIP-858)."""

    def __post_init__(self) -> None:
        if len(self.directories) != len(self.replicas):
            self.directories = [UNASSIGNED] * len(self.replicas)

    def directory_of(self, node_id: int) -> UUID:
        """Return the log directory of a broker's replica; UNASSIGNED if unknown, or without such a replica."""
        if node_id not in self.replicas:
            return UNASSIGNED
        return self.directories[self.replicas.index(node_id)]


_revisions = count()


@dataclass(slots=True)
class TopicState:
    """A topic with its partitions in order of their index, and its own configuration."""

    name: str
    topic_id: UUID
    partitions: list[PartitionState] = field(default_factory=list)
    configs: dict[str, str] = field(default_factory=dict)
    revision: int = field(default_factory=lambda: next(_revisions), compare=False, repr=False)
    """A number that no other topic has, and this one only until a partition is added or changed."""

    def new_revision(self) -> None:
        """Change the revision, as a partition was added or changed."""
        self.revision = next(_revisions)

    @property
    def is_internal(self) -> bool:
        """Whether a coordinator stores its state in the topic."""
        return is_internal(self.name)


class ClusterState:
    """A state that results from a metadata log."""

    def __init__(self) -> None:
        self.brokers: dict[int, BrokerState] = {}
        """Registered brokers; empty on a lone broker."""
        self.topics: dict[str, TopicState] = {}
        self.topics_by_id: dict[UUID, TopicState] = {}
        self.configs: dict[tuple[ResourceType, str], dict[str, str]] = {}
        """Configurations of resources other than topics; a broker's by its id, the cluster's default by the empty
        name."""
        self.quotas: dict[Entity, dict[str, float]] = {}
        self.scram: dict[tuple[str, int], UserScramCredentialRecord] = {}
        self.tokens: dict[str, DelegationTokenRecord] = {}
        """Delegation tokens, by id."""
        self.acls: dict[UUID, AccessControlEntryRecord] = {}
        self.features: dict[str, int] = {}
        self.next_producer_id = 0
        self.removed_topic_ids: set[UUID] = set()
        """Topics deleted since the last snapshot, whose directories may still exist after a crash."""
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
            DelegationTokenRecord: self._set_token,
            RemoveDelegationTokenRecord: self._remove_token,
            AccessControlEntryRecord: self._add_acl,
            RemoveAccessControlEntryRecord: self._remove_acl,
            FeatureLevelRecord: self._set_feature,
            ProducerIdsRecord: self._set_producer_ids,
        }

    def apply(self, record: Message) -> None:
        """Apply one record; ignore a record that refers to nothing known."""
        applier = self._appliers.get(type(record))
        if applier is not None:
            applier(record)

    def records(self) -> Iterator[Message]:
        """Yield the records that create this state from nothing."""
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
        yield from self.tokens.values()
        yield from self.acls.values()

    def configs_of(self, kind: ResourceType, name: str) -> dict[str, str]:
        """Return the dynamic configuration of a resource, not to be changed; empty if it has none."""
        if kind is ResourceType.TOPIC:
            topic = self.topics.get(name)
            return topic.configs if topic else {}
        return self.configs.get((kind, name), {})

    def holds(self, partition: PartitionState, node_id: int) -> bool:
        """Return whether a broker's replica may have records: its directory is not known as lost or failed."""
        directory, broker = partition.directory_of(node_id), self.brokers.get(node_id)
        return directory == UNASSIGNED or broker is None or not broker.log_dirs or directory in broker.log_dirs

    def default_directory(self, node_id: int) -> UUID:
        """Return the directory of a broker's new replica: UNASSIGNED unless the broker has only one."""
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
        topic.new_revision()
        if record.partition_id == len(topic.partitions):
            topic.partitions.append(partition)
        else:
            kept = [known for known in topic.partitions if known.index != record.partition_id]
            topic.partitions[:] = sorted([*kept, partition], key=lambda known: known.index)

    def _change_partition(self, record: PartitionChangeRecord) -> None:
        topic = self.topics_by_id.get(record.topic_id)
        partition = next((p for p in topic.partitions if p.index == record.partition_id), None) if topic else None
        if topic is None or partition is None:
            return
        topic.new_revision()
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
            # In Kafka's snapshots configurations may come before their topics.
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

    def _set_token(self, record: DelegationTokenRecord) -> None:
        self.tokens[record.token_id] = record

    def _remove_token(self, record: RemoveDelegationTokenRecord) -> None:
        self.tokens.pop(record.token_id, None)

    def _add_acl(self, record: AccessControlEntryRecord) -> None:
        self.acls[record.id] = record

    def _remove_acl(self, record: RemoveAccessControlEntryRecord) -> None:
        self.acls.pop(record.id, None)

    def _set_feature(self, record: FeatureLevelRecord) -> None:
        self.features[record.name] = record.feature_level

    def _set_producer_ids(self, record: ProducerIdsRecord) -> None:
        self.next_producer_id = record.next_producer_id


def broker_record(broker: BrokerState) -> RegisterBrokerRecord:
    """Return the record that registers a broker in its present state."""
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
    """Yield the records that create a topic, in the order in which Kafka's controller writes them."""
    yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
    for name, value in topic.configs.items():
        yield ConfigRecord(resource_type=ResourceType.TOPIC, resource_name=topic.name, name=name, value=value)
    for partition in topic.partitions:
        yield partition_record(topic.topic_id, partition)


def partition_record(topic_id: UUID, partition: PartitionState) -> PartitionRecord:
    """Return the record that creates one partition."""
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
    """Return an entity in the form of records."""
    return [QuotaEntity(entity_type=kind, entity_name=name) for kind, name in entity]
