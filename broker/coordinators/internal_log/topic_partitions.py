"""The partitions of internal topics for coordinators (`coordinator_log.InternalTopics`)."""

from __future__ import annotations

from ...metadata.store import MetadataStore
from ...replicas.partition import Partition
from ...replicas.partition_registry import PartitionRegistry


class InternalTopicPartitions:
    """A view of internal topics in the metadata, and of their partitions on this broker."""

    def __init__(self, metadata: MetadataStore, partitions: PartitionRegistry) -> None:
        self._metadata = metadata
        self._partitions = partitions

    def ensure_internal_topic(self, name: str) -> int:
        """Create the topic if it is missing; return its number of partitions."""
        return len(self._metadata.ensure_topic(name).partitions)

    def internal_topic_partitions(self, name: str) -> int:
        """Return the number of the topic's partitions, 0 if the topic does not exist."""
        topic = self._metadata.topics.get(name)
        return 0 if topic is None else len(topic.partitions)

    def internal_partition(self, name: str, index: int) -> Partition | None:
        """Return a partition of the topic, None if this broker has no replica of it."""
        return self._partitions.find(name, index)
