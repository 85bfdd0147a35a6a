"""Keeps the partitions that this broker serves in step with the metadata: logs are made, configured and deleted."""

from __future__ import annotations

from ...storage.log_manager import LogManager
from ..partition import Partition, PartitionRegistry
from .changes import BrokerConfigChanged, MetadataChange, PartitionsAdded, TopicConfigChanged, TopicDeleted
from .state import TopicState
from .store import MetadataStore


class TopicLogs:
    """Applies metadata changes to the log manager and the partition registry of one broker."""

    def __init__(self, metadata: MetadataStore, logs: LogManager, partitions: PartitionRegistry) -> None:
        self._metadata = metadata
        self._logs = logs
        self._partitions = partitions

    def start(self) -> None:
        """Serve what the metadata says now, and follow its changes. Raises BrokerError if a log cannot be made."""
        self._logs.defaults = self._metadata.config.log_config()
        for topic in self._metadata.topics.values():
            self._add_partitions(topic, 0)
        self._metadata.subscribe(self.apply)

    def apply(self, change: MetadataChange) -> None:
        """Act on one change."""
        match change:
            case PartitionsAdded(topic, first):
                self._add_partitions(topic, first)
            case TopicDeleted(topic):
                self._remove(topic)
            case TopicConfigChanged(topic):
                self._configure(topic)
            case BrokerConfigChanged():
                self._logs.defaults = self._metadata.config.log_config()
                for topic in self._metadata.topics.values():
                    self._configure(topic)

    def _add_partitions(self, topic: TopicState, first: int) -> None:
        config = self._metadata.topic_config(topic.name)
        for state in topic.partitions[first:]:
            if self._metadata.node_id not in state.replicas:
                continue
            log = self._logs.get(topic.name, state.index)
            if log is None:
                log = self._logs.create(topic.name, state.index, topic.topic_id, config)
            else:
                log.config = config
            self._partitions.add(Partition(log, leader_epoch=state.leader_epoch))

    def _remove(self, topic: TopicState) -> None:
        for state in topic.partitions:
            self._partitions.remove(topic.name, state.index)
            if self._logs.get(topic.name, state.index) is not None:
                self._logs.delete(topic.name, state.index)

    def _configure(self, topic: TopicState) -> None:
        config = self._metadata.topic_config(topic.name)
        for partition in self._partitions.of_topic(topic.name).values():
            partition.log.config = config
            partition.wake_waiters()
