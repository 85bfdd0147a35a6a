"""Topics that are deleted, re-created and enlarged behind a gateway of three brokers, under old clients.

Clients may get Kafka's retriable errors for a while, and then the records of the present topic, never of the former.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from uuid import UUID

import pytest

from gregor.gateway.gateway import Gateway
from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from gregor.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from gregor.protocol.messages.delete_topics import DeleteTopicsRequest
from gregor.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from gregor.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from gregor.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gregor.protocol.records import v1
from gregor.protocol.records.batches import iter_batches, iter_records
from gregor.protocol.schema import NO_UUID
from tests.cluster_of_processes import ClusterOfProcesses, running_cluster
from tests.free_ports import free_ports
from tests.gateway.kafka_4 import gateway_before
from tests.waiting import PATIENCE_S, wait_until
from tests.wire import Wire

LARGE, SMALL = 6, 4
CONVERTED = {"gregor.message.downconversion.zstd.codec": "gzip"}
"""The gateway decodes and converts each answer to these clients, as it does in front of Kafka 4."""
MODES = {
    "one address": (False, {}),
    "one address, converted": (False, CONVERTED),
    "ports": (True, {}),
    "ports, converted": (True, CONVERTED),
}
"""Whether each broker has a port of its own at the gateway, and further settings."""
RETRIABLE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
"""The errors for which clients of 0.8 to 0.10 ask for metadata and try again."""
VERSIONS = [(2, 0), (3, 1)]
"""The versions of Fetch and Metadata that clients use together."""
names = (f"topic-{number}" for number in itertools.count())


class OldClient:
    """A client of 0.9 or 0.10: it asks the leaders that Metadata names, and asks for metadata after each error."""

    def __init__(self, address: tuple[str, int], topic: str, fetch_version: int, metadata_version: int) -> None:
        self.topic = topic
        self.errors: set[int] = set()
        """All errors but OFFSET_OUT_OF_RANGE, after which the client begins with the first record."""
        self.offsets: defaultdict[int, int] = defaultdict(int)
        self.leaders: dict[int, tuple[str, int]] = {}
        self._seed = address
        self._fetch_version, self._metadata_version = fetch_version, metadata_version
        self._wires: dict[tuple[str, int], Wire] = {}

    def close(self) -> None:
        """Close all connections."""
        for wire in self._wires.values():
            wire.socket.close()

    def wire(self, address: tuple[str, int]) -> Wire:
        """Return the connection to an address."""
        if address not in self._wires:
            self._wires[address] = Wire(address)
        return self._wires[address]

    def refresh(self) -> int:
        """Ask for the leaders; return the error of the topic."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=self.topic)])
        answer = self.wire(self._seed).ask(ApiKey.METADATA, self._metadata_version, request)
        brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        (topic,) = answer.topics
        self.errors |= {code for code in (topic.error_code, *(part.error_code for part in topic.partitions)) if code}
        self.leaders = {
            part.partition_index: brokers[part.leader_id] for part in topic.partitions if part.leader_id in brokers
        }
        code: int = topic.error_code
        return code

    def indices_at(self, indices: Iterable[int]) -> dict[tuple[str, int], list[int]]:
        """Return partitions by the address of their leader."""
        found: dict[tuple[str, int], list[int]] = {}
        for index in indices:
            if index in self.leaders:
                found.setdefault(self.leaders[index], []).append(index)
        return found

    def try_to_produce(self, value: bytes, indices: Iterable[int]) -> set[int]:
        """Write one message to each partition; return those that were acknowledged."""
        records = memoryview(v1.build_message(0, 1, None, value))
        written = set()
        for address, own in self.indices_at(indices).items():
            data = TopicProduceData(
                name=self.topic, partition_data=[PartitionProduceData(index=index, records=records) for index in own]
            )
            request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data])
            (topic,) = self.wire(address).ask(ApiKey.PRODUCE, 2, request).responses
            self.errors |= {part.error_code for part in topic.partition_responses if part.error_code}
            written |= {part.index for part in topic.partition_responses if not part.error_code}
        return written

    def produce(self, value: bytes, count: int) -> None:
        """Write one message to each of the first ``count`` partitions, and try again as producers do."""
        missing = set(range(count))

        def is_done() -> bool:
            missing.difference_update(self.try_to_produce(value, sorted(missing)))
            if missing:
                self.refresh()
            return not missing

        wait_until(is_done)

    def begin_fetch(self, max_wait_ms: int) -> list[tuple[str, int]]:
        """Send a fetch for all known partitions; return the addresses that answer."""
        asked = self.indices_at(sorted(self.leaders))
        for address, own in asked.items():
            parts = [
                FetchPartition(partition=index, fetch_offset=self.offsets[index], partition_max_bytes=1 << 20)
                for index in own
            ]
            request = FetchRequest(
                max_wait_ms=max_wait_ms, min_bytes=1, topics=[FetchTopic(topic=self.topic, partitions=parts)]
            )
            self.wire(address).send(ApiKey.FETCH, self._fetch_version, request)
        return list(asked)

    def end_fetch(self, addresses: list[tuple[str, int]]) -> list[tuple[int, bytes | None]]:
        """Return the next records by partition from the answers of these addresses."""
        found: list[tuple[int, bytes | None]] = []
        for address in addresses:
            (topic,) = self.wire(address).answer(ApiKey.FETCH, self._fetch_version).responses
            for part in topic.partitions:
                index = part.partition_index
                if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    assert self.offsets[index], "the first offset of a new log is 0"
                    self.offsets[index] = 0
                elif part.error_code:
                    self.errors.add(part.error_code)
                    assert not part.records
                for batch in iter_batches(bytes(part.records or b"")):
                    for record in iter_records(batch):
                        if record.offset >= self.offsets[index]:
                            self.offsets[index] = record.offset + 1
                            found.append((index, record.value))
        return found

    def consume(self, count: int) -> list[tuple[int, bytes | None]]:
        """Return the next ``count`` records, and try again as consumers do."""
        found: list[tuple[int, bytes | None]] = []

        def is_done() -> bool:
            errors, self.errors = self.errors, set()
            found.extend(self.end_fetch(self.begin_fetch(max_wait_ms=50)))
            if self.errors or not self.leaders:
                self.refresh()
            self.errors |= errors
            return len(found) >= count

        try:
            wait_until(is_done)
        except AssertionError as error:
            raise AssertionError(f"found {found}, offsets {self.offsets}, leaders {self.leaders}") from error
        return sorted(found, key=repr)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterOfProcesses]:
    """Provide three brokers that make no topic because a client has asked for it."""
    settings = ("broker.heartbeat.interval.ms=100", "auto.create.topics.enable=false")
    with running_cluster(tmp_path_factory.mktemp("cluster"), 3, *settings) as running:
        yield running


@pytest.fixture(scope="module", params=list(MODES.values()), ids=list(MODES))
def gateway(request: pytest.FixtureRequest, cluster: ClusterOfProcesses) -> Iterator[Gateway]:
    """Provide a gateway that looks at the cluster by itself only rarely: it learns of changes from refusals."""
    has_ports, more = request.param
    settings = {"gregor.gateway.metadata.refresh.ms": "60000", **more}
    if has_ports:
        first = free_ports(4)
        settings["gregor.gateway.broker.ports"] = f"{first}-{first + 3}"
    with gateway_before(cluster.bootstrap, settings) as running:
        yield running


@pytest.fixture(params=VERSIONS, ids=lambda versions: "Fetch v{}, Metadata v{}".format(*versions))
def clients(request: pytest.FixtureRequest, gateway: Gateway) -> Iterator[tuple[OldClient, OldClient]]:
    """Provide a producer and a consumer of a topic that does not exist yet."""
    address = ("127.0.0.1", gateway.listening[0].port)
    name = next(names)
    both = OldClient(address, name, *request.param), OldClient(address, name, *request.param)
    yield both
    for client in both:
        client.close()


def create(cluster: ClusterOfProcesses, name: str, partitions: int, first: int = 0) -> UUID:
    """Create a topic, not through the gateway; return its id once all brokers know it.

    Another ``first`` gives each partition another leader. A broker that has not heard yet that the former topic was
    deleted acknowledges records for it, in Kafka too: old clients name no topic id.
    """
    assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=[1 + (first + index) % 3])
        for index in range(partitions)
    ]
    topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments)
    with cluster.wire(1) as direct:
        request = CreateTopicsRequest(topics=[topic], timeout_ms=10000)
        wait_until(lambda: direct.ask(ApiKey.CREATE_TOPICS, 4, request).topics[0].error_code == ErrorCode.NONE)
    (topic_id,) = ids_of(cluster, name, [1])
    wait_until(lambda: ids_of(cluster, name, cluster.brokers) == {topic_id})
    return topic_id


def ids_of(cluster: ClusterOfProcesses, name: str, nodes: Iterable[int]) -> set[UUID]:
    """Return the ids that brokers have for a topic; `NO_UUID` for none."""
    return {cluster.metadata(node, name).topics[0].topic_id for node in nodes}


def delete(cluster: ClusterOfProcesses, name: str) -> None:
    """Delete a topic, not through the gateway."""
    with cluster.wire(1) as direct:
        answer = direct.ask(ApiKey.DELETE_TOPICS, 3, DeleteTopicsRequest(topic_names=[name], timeout_ms=10000))
    assert answer.responses[0].error_code == ErrorCode.NONE


def each(value: bytes, count: int) -> list[tuple[int, bytes | None]]:
    """Return one record of a value in each of the first ``count`` partitions."""
    return [(index, value) for index in range(count)]


def exchange(clients: tuple[OldClient, OldClient], values: Iterable[bytes], count: int) -> None:
    """Write and read a message of each value in each partition."""
    producer, consumer = clients
    for value in values:
        producer.produce(value, count)
        assert consumer.consume(count) == each(value, count)


def test_a_topic_recreated_under_waiting_clients(
    cluster: ClusterOfProcesses, clients: tuple[OldClient, OldClient]
) -> None:
    """A fetch that waits ends with the deletion; until there is a new topic, clients get retriable errors only."""
    producer, consumer = clients
    former = create(cluster, producer.topic, LARGE)
    exchange(clients, (b"old 1", b"old 2", b"old 3"), LARGE)
    consumer.errors.clear()
    waiting = consumer.begin_fetch(max_wait_ms=int(PATIENCE_S * 1000))
    delete(cluster, producer.topic)
    assert consumer.end_fetch(waiting) == []
    assert consumer.errors
    wait_until(lambda: ids_of(cluster, producer.topic, cluster.brokers) == {NO_UUID})
    assert producer.refresh() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    producer.leaders = dict(consumer.leaders)
    assert producer.try_to_produce(b"lost", range(LARGE)) == set()
    assert consumer.end_fetch(consumer.begin_fetch(max_wait_ms=50)) == []
    assert create(cluster, producer.topic, SMALL, first=1) != former
    exchange(clients, (b"new 1", b"new 2"), SMALL)
    for client in clients:
        assert client.errors <= RETRIABLE
        client.refresh()
        assert sorted(client.leaders) == list(range(SMALL))


def test_a_topic_recreated_while_clients_send_no_requests(
    cluster: ClusterOfProcesses, clients: tuple[OldClient, OldClient]
) -> None:
    """All leaders have changed; the consumer's offset is behind the end of the new log, as with Kafka alone."""
    producer, _ = clients
    former = create(cluster, producer.topic, LARGE)
    exchange(clients, (b"old 1", b"old 2", b"old 3"), LARGE)
    delete(cluster, producer.topic)
    assert create(cluster, producer.topic, LARGE, first=2) != former
    exchange(clients, (b"new 1", b"new 2"), LARGE)
    for client in clients:
        assert client.errors <= RETRIABLE


def test_partitions_added_under_clients(
    cluster: ClusterOfProcesses, gateway: Gateway, clients: tuple[OldClient, OldClient]
) -> None:
    """The new ones are unknown before; then metadata names their leaders, and records arrive in all of them."""
    producer, consumer = clients
    create(cluster, producer.topic, 2)
    exchange(clients, (b"1", b"2"), 2)
    some = producer.leaders[0]
    producer.errors.clear()
    producer.leaders[LARGE - 1] = some
    assert producer.try_to_produce(b"too early", [LARGE - 1]) == set()
    assert producer.errors == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    waiting = consumer.begin_fetch(max_wait_ms=500)
    with cluster.wire(1) as direct:
        added = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=producer.topic, count=LARGE, assignments=None)], timeout_ms=10000
        )
        assert direct.ask(ApiKey.CREATE_PARTITIONS, 1, added).results[0].error_code == ErrorCode.NONE
    assert consumer.end_fetch(waiting) == []
    wait_until(lambda: consumer.refresh() == ErrorCode.NONE and len(consumer.leaders) == LARGE)
    exchange(clients, (b"3", b"4"), LARGE)
    leaders = cluster.leaders(1, producer.topic)
    assert set(leaders) == {1, 2, 3}
    ports = {index: port for index, (_, port) in consumer.leaders.items()}
    if gateway.config.gregor_gateway_broker_ports:
        first = int(gateway.config.gregor_gateway_broker_ports.partition("-")[0])
        assert ports == {index: first + leader for index, leader in enumerate(leaders)}
    else:
        assert set(ports.values()) == {gateway.listening[0].port}
    for client in clients:
        assert client.errors <= RETRIABLE
