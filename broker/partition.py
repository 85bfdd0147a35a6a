"""A partition as the broker sees it: its log, and the parked fetches that wait for it to grow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from ..protocol.errors import BrokerError, ErrorCode
from ..protocol.records.produced import Produced
from ..protocol.records.record import TimestampType
from ..protocol.records.validation import AppendRules
from ..storage.log_config import LogConfig
from ..storage.partition_log import AppendOrigin, AppendResult, PartitionLog
from .metadata.internal_topics import is_internal


class PartitionWaiter(Protocol):
    """What wants to hear of a partition's changes (a `purgatory.ParkedFetch`)."""

    def appended(self, size_bytes: int) -> None:
        """So many bytes of records were added."""

    def changed(self) -> None:
        """The partition was deleted or truncated, or its stable end moved: look again."""


class Partition:
    """One partition's log and its waiters."""

    __slots__ = ("_rules", "_rules_config", "_waiters", "index", "is_internal", "leader_epoch", "log", "topic")

    def __init__(self, log: PartitionLog, *, leader_epoch: int = 0) -> None:
        self.log = log
        self.topic = log.topic
        self.index = log.partition
        self.is_internal = is_internal(log.topic)
        self.leader_epoch = leader_epoch
        self._waiters: set[PartitionWaiter] = set()
        self._rules_config: LogConfig | None = None
        self._rules = AppendRules()

    @property
    def append_rules(self) -> AppendRules:
        """What the topic's present configuration asks of records."""
        config = self.log.config
        if config is not self._rules_config:
            self._rules, self._rules_config = rules_of(config), config
        return self._rules

    def append(
        self,
        produced: Produced,
        *,
        leader_epoch: int | None = None,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> AppendResult:
        """Append to the log and wake who waits for records. Raises BrokerError as `PartitionLog.append`."""
        epoch = self.leader_epoch if leader_epoch is None else leader_epoch
        result = self.log.append(produced, leader_epoch=epoch, origin=origin)
        if self._waiters and not result.duplicate:
            size_bytes = len(produced.data)
            for waiter in list(self._waiters):
                waiter.appended(size_bytes)
        return result

    def wake_waiters(self) -> None:
        """Make parked fetches look at this partition again."""
        for waiter in list(self._waiters):
            waiter.changed()

    def watch(self, waiter: PartitionWaiter) -> None:
        """Tell ``waiter`` of every change from now on."""
        self._waiters.add(waiter)

    def unwatch(self, waiter: PartitionWaiter) -> None:
        """Forget a waiter."""
        self._waiters.discard(waiter)


def rules_of(config: LogConfig) -> AppendRules:
    """What a topic with this configuration accepts."""
    kept = TimestampType.LOG_APPEND_TIME if config.is_log_append_time else TimestampType.CREATE_TIME
    return AppendRules(
        max_message_bytes=config.max_message_bytes,
        timestamp_type=kept,
        timestamp_before_max_ms=config.message_timestamp_before_max_ms,
        timestamp_after_max_ms=config.message_timestamp_after_max_ms,
        keys_required=config.is_compacted,
    )


class PartitionRegistry:
    """The partitions of this broker, by topic and index."""

    def __init__(self, partitions: Iterable[Partition] = ()) -> None:
        self._topics: dict[str, dict[int, Partition]] = {}
        self._encoded: dict[bytes, dict[int, Partition]] = {}
        for partition in partitions:
            self.add(partition)

    def __iter__(self) -> Iterator[Partition]:
        for partitions in list(self._topics.values()):
            yield from list(partitions.values())

    def __len__(self) -> int:
        return sum(map(len, self._topics.values()))

    def find(self, topic: str, index: int) -> Partition | None:
        """The partition, or None if this broker has no such one."""
        partitions = self._topics.get(topic)
        return None if partitions is None else partitions.get(index)

    def find_encoded(self, topic: bytes, index: int) -> Partition | None:
        """As `find`, by the name's bytes on the wire."""
        partitions = self._encoded.get(topic)
        return None if partitions is None else partitions.get(index)

    def get(self, topic: str, index: int) -> Partition:
        """The partition. Raises BrokerError UNKNOWN_TOPIC_OR_PARTITION."""
        partition = self.find(topic, index)
        if partition is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return partition

    def of_topic(self, topic: str) -> dict[int, Partition]:
        """The partitions of one topic by index, not to be changed; empty if there is no such topic."""
        return self._topics.get(topic, {})

    def add(self, partition: Partition) -> None:
        """Start serving a partition."""
        partitions = self._topics.setdefault(partition.topic, {})
        partitions[partition.index] = partition
        self._encoded[partition.topic.encode()] = partitions

    def remove(self, topic: str, index: int) -> Partition | None:
        """Stop serving a partition; its waiters look again and find it gone."""
        partitions = self._topics.get(topic)
        partition = None if partitions is None else partitions.pop(index, None)
        if partition is not None:
            if not partitions:
                del self._topics[topic]
                del self._encoded[topic.encode()]
            partition.wake_waiters()
        return partition
