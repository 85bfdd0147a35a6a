"""A Kafka cluster in memory, for tests of the users of the interface `KafkaCluster`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.zookeeper.kafka_cluster import BrokerAddress, ClientAddress, PartitionView, TopicPartition, TopicView


def topic_of(replicas: Sequence[Sequence[int]], configs: Mapping[str, str] | None = None) -> TopicView:
    """Return a topic whose partitions are led by their first replicas."""
    partitions = tuple(PartitionView(ids[0], 0, tuple(ids), tuple(ids)) for ids in replicas)
    return TopicView(partitions, tuple(sorted((configs or {}).items())))


@dataclass
class MemoryCluster:
    """A cluster of brokers 1 and 2, whose topics and offsets a test may also change directly."""

    cluster_id: str = "memory"
    controller_id: int = 1
    known_topics: dict[str, TopicView] = field(default_factory=dict)
    offsets: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    broker_ids: list[int] = field(default_factory=lambda: [1, 2])
    refusal: BrokerError | None = None
    """The error of all requests from now on."""
    before_answers: Callable[[], Awaitable[None]] | None = None
    """Function that each request waits for."""
    clients: list[ClientAddress] = field(default_factory=list)
    """The clients on whose behalf requests were made."""
    _changed: list[Callable[[], None]] = field(default_factory=list)

    def changed(self) -> None:
        """Notify all listeners of a change of the metadata."""
        for each in self._changed:
            each()

    def put_topic(self, name: str, topic: TopicView | None) -> None:
        """Create, replace or delete a topic."""
        if topic is None:
            del self.known_topics[name]
        else:
            self.known_topics[name] = topic
        self.changed()

    def brokers(self, client: ClientAddress | None) -> Mapping[int, BrokerAddress]:
        host = "nobody" if client is None else client.local[0]
        return {node_id: BrokerAddress(host, 9090 + node_id) for node_id in self.broker_ids}

    def topics(self) -> Mapping[str, TopicView]:
        return self.known_topics

    def subscribe(self, changed: Callable[[], None]) -> None:
        self._changed.append(changed)

    async def list_groups(self, client: ClientAddress) -> Collection[str]:
        await self._begin(client)
        return list(self.offsets)

    async def fetch_offsets(
        self, client: ClientAddress, group: str, partitions: Sequence[TopicPartition] | None
    ) -> Mapping[TopicPartition, int]:
        await self._begin(client)
        own = self.offsets.get(group, {})
        return {place: offset for place, offset in own.items() if partitions is None or place in partitions}

    async def commit_offset(self, client: ClientAddress, group: str, partition: TopicPartition, offset: int) -> None:
        await self._begin(client)
        topic = self._topic(partition.topic)
        if partition.partition >= len(topic.partitions):
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self.offsets.setdefault(group, {})[partition] = offset

    async def delete_offset(self, client: ClientAddress, group: str, partition: TopicPartition) -> None:
        await self._begin(client)
        del self.offsets[group][partition]

    async def create_topic(
        self, client: ClientAddress, topic: str, replicas: Sequence[Sequence[int]], configs: Mapping[str, str]
    ) -> None:
        await self._begin(client)
        if topic in self.known_topics:
            raise BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS)
        self.put_topic(topic, topic_of(replicas, configs))

    async def add_partitions(
        self, client: ClientAddress, topic: str, count: int, added: Sequence[Sequence[int]]
    ) -> None:
        await self._begin(client)
        known = self._topic(topic)
        self.put_topic(topic, TopicView(known.partitions + topic_of(added).partitions, known.configs))
        assert len(self.known_topics[topic].partitions) == count

    async def set_configs(self, client: ClientAddress, topic: str, configs: Mapping[str, str]) -> None:
        await self._begin(client)
        self.put_topic(topic, TopicView(self._topic(topic).partitions, tuple(sorted(configs.items()))))

    async def delete_topic(self, client: ClientAddress, topic: str) -> None:
        await self._begin(client)
        self._topic(topic)
        self.put_topic(topic, None)

    async def _begin(self, client: ClientAddress) -> None:
        self.clients.append(client)
        if self.before_answers is not None:
            await self.before_answers()
        if self.refusal is not None:
            raise self.refusal

    def _topic(self, name: str) -> TopicView:
        if name not in self.known_topics:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return self.known_topics[name]
