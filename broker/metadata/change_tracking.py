"""Derivation of changes for subscribers from metadata records.

The controller's own changes and those that a broker reads from the controller's log are both derived from records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from uuid import UUID

from ...protocol.messages.cluster_metadata_records import (
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from ...protocol.schema import Message
from .changes import (
    AclsChanged,
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
        self._acls_before: dict[UUID, AccessControlEntryRecord | None] = {}
        """The ACL with each id that a record of the batch names, as the ACL was before the batch."""
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
            case AccessControlEntryRecord() | RemoveAccessControlEntryRecord():
                self._acls_before.setdefault(record.id, self._state.acls.get(record.id))
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
        if self._acls_before:
            after = {acl_id: self._state.acls[acl_id] for acl_id in self._acls_before if acl_id in self._state.acls}
            yield _acls_changed({k: acl for k, acl in self._acls_before.items() if acl is not None}, after)


def _acls_changed(
    before: Mapping[UUID, AccessControlEntryRecord], after: Mapping[UUID, AccessControlEntryRecord]
) -> AclsChanged:
    """Return the difference between two sets of ACLs, by id."""
    return AclsChanged(
        added=tuple(acl for acl_id, acl in after.items() if before.get(acl_id) is not acl),
        removed=tuple(acl for acl_id, acl in before.items() if after.get(acl_id) is not acl),
    )


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
    yield _acls_changed(before.acls, after.acls)
