"""Derivation of changes for subscribers from metadata records.

The controller's own changes and those that a broker reads from the controller's log are both derived from records.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from ...protocol.messages.cluster_metadata_records import (
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from ...protocol.schema import Message
from .changes import (
    BrokerConfigChanged,
    BrokersChanged,
    ClientMetricsChanged,
    FeaturesChanged,
    MetadataChange,
    PartitionsAdded,
    PartitionsChanged,
    QuotasChanged,
    TopicConfigChanged,
    TopicDeleted,
)
from .state import ClusterState, ResourceType, TopicState


class ChangeTracker:
    """A tracker that applies records of one batch to a state, and then yields each resulting change once."""

    def __init__(self, state: ClusterState, node_id: int) -> None:
        self._state = state
        self._own_resources = ("", str(node_id))
        self._deleted: list[TopicState] = []
        self._new_topics: set[UUID] = set()
        self._first_new_partition: dict[UUID, int] = {}
        self._changed_partitions: dict[UUID, set[int]] = {}
        self._configured_topics: dict[str, None] = {}
        self._others: dict[MetadataChange, None] = {}

    def apply(self, record: Message) -> None:
        """Apply one record."""
        match record:
            case TopicRecord():
                self._new_topics.add(record.topic_id)
            case PartitionRecord():
                self._note_partition(record)
            case PartitionChangeRecord():
                self._changed_partitions.setdefault(record.topic_id, set()).add(record.partition_id)
            case RemoveTopicRecord():
                topic = self._state.topics_by_id.get(record.topic_id)
                if topic is not None:
                    self._deleted.append(topic)
            case ConfigRecord():
                self._note_config(record)
            case ClientQuotaRecord():
                self._others[QuotasChanged()] = None
            case FeatureLevelRecord():
                self._others[FeaturesChanged()] = None
            case RegisterBrokerRecord() | UnregisterBrokerRecord() | BrokerRegistrationChangeRecord():
                self._others[BrokersChanged()] = None
        self._state.apply(record)

    def _note_partition(self, record: PartitionRecord) -> None:
        topic = self._state.topics_by_id.get(record.topic_id)
        if topic is not None and any(known.index == record.partition_id for known in topic.partitions):
            self._changed_partitions.setdefault(record.topic_id, set()).add(record.partition_id)
            return
        first = self._first_new_partition.get(record.topic_id, record.partition_id)
        self._first_new_partition[record.topic_id] = min(first, record.partition_id)

    def _note_config(self, record: ConfigRecord) -> None:
        if record.resource_type == ResourceType.TOPIC:
            self._configured_topics[record.resource_name] = None
        elif record.resource_type == ResourceType.BROKER and record.resource_name in self._own_resources:
            self._others[BrokerConfigChanged()] = None
        elif record.resource_type == ResourceType.CLIENT_METRICS:
            self._others[ClientMetricsChanged()] = None

    def changes(self) -> Iterator[MetadataChange]:
        """Yield the changes: brokers first, as partitions refer to them; new partitions only as added."""
        known = self._state.topics_by_id
        yield from (change for change in self._others if isinstance(change, BrokersChanged))
        yield from map(TopicDeleted, self._deleted)
        for topic_id, first in self._first_new_partition.items():
            if topic_id in known:
                yield PartitionsAdded(known[topic_id], first)
        for topic_id, indexes in self._changed_partitions.items():
            known_before = self._first_new_partition.get(topic_id, max(indexes) + 1)
            older = tuple(sorted(index for index in indexes if index < known_before))
            if topic_id in known and older:
                yield PartitionsChanged(known[topic_id], older)
        for name in self._configured_topics:
            topic = self._state.topics.get(name)
            if topic is not None and topic.topic_id not in self._new_topics:
                yield TopicConfigChanged(topic)
        yield from (change for change in self._others if not isinstance(change, BrokersChanged))


def differences(before: ClusterState, after: ClusterState) -> Iterator[MetadataChange]:
    """Yield the changes between two states, for a broker that loaded a snapshot instead of the records in between.

    Configurations, quotas and the like always count as changed: subscribers read their present values.
    """
    yield BrokersChanged()
    for topic_id, topic in before.topics_by_id.items():
        if topic_id not in after.topics_by_id:
            yield TopicDeleted(topic, is_recorded=False)
    for topic_id, topic in after.topics_by_id.items():
        known = before.topics_by_id.get(topic_id)
        had = len(known.partitions) if known else 0
        if len(topic.partitions) > had:
            yield PartitionsAdded(topic, had)
        if known is not None:
            pairs = zip(known.partitions, topic.partitions, strict=False)
            changed = tuple(new.index for old, new in pairs if old != new)
            if changed:
                yield PartitionsChanged(topic, changed, is_recorded=False)
            if known.configs != topic.configs:
                yield TopicConfigChanged(topic)
    yield from (BrokerConfigChanged(), QuotasChanged(), ClientMetricsChanged(), FeaturesChanged())
