"""Which partitions this broker has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ...protocol.errors import BrokerError, ErrorCode
from .partition import Partition


class PartitionRegistry:
    """The partitions of this broker, by topic and index."""

    def __init__(
        self, partitions: Iterable[Partition] = (), *, exists: Callable[[str, int], bool] = lambda *_: False
    ) -> None:
        """``exists`` tells whether the cluster has a partition, here or elsewhere."""
        self._exists = exists
        self._topics: dict[str, dict[int, Partition]] = {}
        self._encoded: dict[bytes, dict[int, Partition]] = {}
        self._offline: set[tuple[str, int]] = set()
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
        """The partition. Raises BrokerError as `why_missing` says."""
        partition = self.find(topic, index)
        if partition is None:
            raise BrokerError(self.why_missing(topic, index))
        return partition

    def led(self, topic: str, index: int) -> Partition:
        """The partition, which is led here. Raises BrokerError as `get`, NOT_LEADER_OR_FOLLOWER."""
        partition = self.get(topic, index)
        partition.check_leader()
        return partition

    def why_missing(self, topic: str, index: int) -> ErrorCode:
        """Return what to tell a client that asks for a partition that is not here.

        That is KAFKA_STORAGE_ERROR for a partition whose log is offline here, NOT_LEADER_OR_FOLLOWER for one that other
        brokers have, else UNKNOWN_TOPIC_OR_PARTITION.
        """
        if (topic, index) in self._offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        is_elsewhere = self._exists(topic, index)
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if is_elsewhere else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def of_topic(self, topic: str) -> dict[int, Partition]:
        """The partitions of one topic by index, not to be changed; empty if there is no such topic."""
        return self._topics.get(topic, {})

    def add(self, partition: Partition) -> None:
        """Start serving a partition."""
        partitions = self._topics.setdefault(partition.topic, {})
        partitions[partition.index] = partition
        self._offline.discard((partition.topic, partition.index))
        self._encoded[partition.topic.encode()] = partitions

    @property
    def offline_count(self) -> int:
        """How many partitions of this broker have a log that cannot be used."""
        return len(self._offline)

    def is_offline(self, topic: str, index: int) -> bool:
        """Whether this broker has the partition, and its log cannot be used."""
        return (topic, index) in self._offline

    def take_offline(self, topic: str, index: int) -> Partition | None:
        """Serve a partition no more whose log cannot be used (Kafka `HostedPartition.Offline`), until `add`."""
        partition = self.remove(topic, index)
        self._offline.add((topic, index))
        if partition is not None:
            partition.wake_waiters()
        return partition

    def remove(self, topic: str, index: int) -> Partition | None:
        """Stop serving a partition; its waiters look again and find it gone."""
        self._offline.discard((topic, index))
        partitions = self._topics.get(topic)
        partition = None if partitions is None else partitions.pop(index, None)
        if partition is not None:
            if not partitions:
                del self._topics[topic]
                del self._encoded[topic.encode()]
            partition.retire()
        return partition
