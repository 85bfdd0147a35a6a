"""The registry of this broker's partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.topic_partition import AnyTopicPartition
from .partition import Partition
from .waiting_partitions import WaitingPartitions


class PartitionRegistry:
    """A registry of the partitions of this broker, by topic and index."""

    def __init__(
        self, partitions: Iterable[Partition] = (), *, exists: Callable[[str, int], bool] = lambda *_: False
    ) -> None:
        """Register ``partitions``; ``exists`` tells whether the cluster has a partition, here or elsewhere."""
        self._exists = exists
        self._topics: dict[str, dict[int, Partition]] = {}
        self.encoded: dict[bytes, dict[int, Partition]] = {}
        """All partitions, by the bytes of the topic's name and then by index, not to be changed."""
        self._offline: set[AnyTopicPartition] = set()
        self.waiting = WaitingPartitions()
        for partition in partitions:
            self.add(partition)

    def __iter__(self) -> Iterator[Partition]:
        for partitions in list(self._topics.values()):
            yield from list(partitions.values())

    def __len__(self) -> int:
        return sum(map(len, self._topics.values()))

    def find(self, topic: str, index: int) -> Partition | None:
        """Return the partition, or None if this broker does not have it."""
        partitions = self._topics.get(topic)
        return None if partitions is None else partitions.get(index)

    def find_encoded(self, topic: bytes, index: int) -> Partition | None:
        """Return the partition as `find` does, by the bytes of the topic's name."""
        partitions = self.encoded.get(topic)
        return None if partitions is None else partitions.get(index)

    def get(self, topic: str, index: int) -> Partition:
        """Return the partition. Raises BrokerError with the code of `why_missing`."""
        partition = self.find(topic, index)
        if partition is None:
            raise BrokerError(self.why_missing(topic, index))
        return partition

    def led(self, topic: str, index: int) -> Partition:
        """Return the partition, of which this broker is leader.

        Raises BrokerError as `get` does, and NOT_LEADER_OR_FOLLOWER.
        """
        partition = self.get(topic, index)
        partition.check_leader()
        return partition

    def why_missing(self, topic: str, index: int) -> ErrorCode:
        """Return the error code for a client that requests a partition that is not here.

        That is KAFKA_STORAGE_ERROR for a partition whose log is offline here, NOT_LEADER_OR_FOLLOWER for one that other
        brokers have, else UNKNOWN_TOPIC_OR_PARTITION.
        """
        if (topic, index) in self._offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        is_elsewhere = self._exists(topic, index)
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if is_elsewhere else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def of_topic(self, topic: str) -> dict[int, Partition]:
        """Return the partitions of one topic by index, not to be changed; empty if there are none."""
        return self._topics.get(topic, {})

    def add(self, partition: Partition) -> None:
        """Start serving a partition."""
        partitions = self._topics.setdefault(partition.topic, {})
        partitions[partition.index] = partition
        partition.on_waiting = self.waiting.add
        self._offline.discard((partition.topic, partition.index))
        self.encoded[partition.topic.encode()] = partitions

    @property
    def offline_count(self) -> int:
        """The number of partitions of this broker whose log is offline."""
        return len(self._offline)

    def is_offline(self, topic: str, index: int) -> bool:
        """Return whether this broker has a replica of the partition whose log is offline."""
        return (topic, index) in self._offline

    def take_offline(self, topic: str, index: int) -> Partition | None:
        """Stop serving a partition whose log is offline (Kafka `HostedPartition.Offline`), until `add`."""
        partition = self.remove(topic, index)
        self._offline.add((topic, index))
        if partition is not None:
            partition.wake_waiters()
        return partition

    def remove(self, topic: str, index: int) -> Partition | None:
        """Stop serving a partition; its waiters are notified and find it missing."""
        self._offline.discard((topic, index))
        partitions = self._topics.get(topic)
        partition = None if partitions is None else partitions.pop(index, None)
        if partition is not None:
            if not partitions:
                del self._topics[topic]
                del self.encoded[topic.encode()]
            partition.retire()
        return partition
