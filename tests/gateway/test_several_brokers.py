"""A gateway in front of three brokers: one address for all, a port for each, leaders that move, brokers that die."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from uuid import UUID

import pytest

from gregor.gateway.gateway import Gateway
from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from gregor.protocol.messages.describe_groups import DescribeGroupsRequest
from gregor.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from gregor.protocol.messages.list_groups import ListGroupsRequest
from gregor.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from gregor.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from gregor.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from gregor.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gregor.protocol.records import v1, v2
from gregor.protocol.records.batches import iter_batches, iter_records
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.record import Record
from tests.broker.controller.cluster_calls import create
from tests.cluster_of_processes import ClusterOfProcesses, running_cluster
from tests.free_ports import free_ports
from tests.gateway.kafka_4 import gateway_before
from tests.waiting import PATIENCE_S, wait_until
from tests.wire import Wire

PARTITIONS = 6


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterOfProcesses]:
    """Provide three brokers with a replicated topic of six partitions, two led by each broker."""
    # A broker whose process is paused for a moment keeps its leadership: only one test kills a broker.
    settings = ("broker.session.timeout.ms=6000", "broker.heartbeat.interval.ms=100", "offsets.topic.num.partitions=6")
    with running_cluster(tmp_path_factory.mktemp("cluster"), 3, *settings) as running:
        create(running, 1, "t", partitions=PARTITIONS, replicas=3)
        yield running


@pytest.fixture
def gateway(cluster: ClusterOfProcesses) -> Iterator[Gateway]:
    """Provide a gateway with one address for the cluster."""
    with gateway_before(cluster.bootstrap, {"gregor.gateway.metadata.refresh.ms": "200"}) as running:
        yield running


@pytest.fixture
def wire(gateway: Gateway) -> Iterator[Wire]:
    """Provide a client of the gateway."""
    with Wire(("127.0.0.1", gateway.listening[0].port)) as connected:
        yield connected


def produce_to_all(wire: Wire, value: bytes, version: int = 2) -> dict[int, tuple[int, int]]:
    """Write one message to each partition; the error and the base offset by partition."""
    records = memoryview(v1.build_message(0, 1, None, value))
    parts = [PartitionProduceData(index=index, records=records) for index in range(PARTITIONS)]
    request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(name="t", partition_data=parts)])
    (topic,) = wire.ask(ApiKey.PRODUCE, version, request).responses
    return {part.index: (part.error_code, part.base_offset) for part in topic.partition_responses}


def fetch_all(wire: Wire, version: int, offsets: dict[int, int], max_wait_ms: int = 500) -> FetchResponse:
    """Fetch all partitions from these offsets."""
    parts = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        for index, offset in offsets.items()
    ]
    request = FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, topics=[FetchTopic(topic="t", partitions=parts)])
    answer = wire.ask(ApiKey.FETCH, version, request)
    assert isinstance(answer, FetchResponse)
    return answer


def values_of(response: FetchResponse) -> dict[int, list[bytes | None]]:
    """Return the values of each partition."""
    return {
        part.partition_index: [
            record.value
            for batch in iter_batches(bytes(part.records))  # type: ignore[arg-type]
            for record in iter_records(batch)
        ]
        for topic in response.responses
        for part in topic.partitions
    }


def end_offsets(wire: Wire) -> dict[int, int]:
    """Return the end of each partition."""
    parts = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(PARTITIONS)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=parts)])
    (topic,) = wire.ask(ApiKey.LIST_OFFSETS, 1, request).topics
    assert {part.error_code for part in topic.partitions} == {ErrorCode.NONE}
    return {part.partition_index: part.offset for part in topic.partitions}


def test_metadata_shows_one_broker(gateway: Gateway, wire: Wire, cluster: ClusterOfProcesses) -> None:
    """Behind one address there is one node, which leads everything."""
    assert set(cluster.leaders(1, "t")) == {1, 2, 3}
    answer = wire.ask(ApiKey.METADATA, 8, MetadataRequest(topics=[MetadataRequestTopic(name="t")]))
    assert isinstance(answer, MetadataResponse)
    assert [(broker.node_id, broker.port) for broker in answer.brokers] == [(0, gateway.listening[0].port)]
    assert answer.controller_id == 0
    assert [(part.leader_id, part.replica_nodes, part.isr_nodes) for part in answer.topics[0].partitions] == [
        (0, [0], [0])
    ] * PARTITIONS


def test_requests_for_several_leaders_are_split_and_merged(wire: Wire) -> None:
    """Produce, ListOffsets and Fetch of each format, in one answer with one entry for the topic."""
    before = end_offsets(wire)
    assert produce_to_all(wire, b"split") == {index: (0, offset) for index, offset in before.items()}
    assert end_offsets(wire) == {index: offset + 1 for index, offset in before.items()}
    for version in (0, 2, 3, 4, 11):
        response = fetch_all(wire, version, before)
        assert len(response.responses) == 1
        assert values_of(response) == {index: [b"split"] for index in range(PARTITIONS)}


def test_a_fetch_at_the_end_waits_and_is_woken(wire: Wire, gateway: Gateway) -> None:
    """Several brokers are asked in slices; records of one end the wait of all."""
    ends = end_offsets(wire)
    assert values_of(fetch_all(wire, 3, ends, max_wait_ms=50)) == {index: [] for index in range(PARTITIONS)}
    with Wire(("127.0.0.1", gateway.listening[0].port)) as producer:
        parts = [
            FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
            for index, offset in ends.items()
        ]
        request = FetchRequest(
            max_wait_ms=int(PATIENCE_S * 1000), min_bytes=1, topics=[FetchTopic(topic="t", partitions=parts)]
        )
        wire.send(ApiKey.FETCH, 2, request)
        produce_to_all(producer, b"woken")
        assert b"woken" in wire.receive_frame()


def test_groups_are_found_at_their_coordinators(wire: Wire) -> None:
    """Groups of several coordinators in one request; all of them in one list."""
    names = [f"g{number}" for number in range(8)]
    for name in names:
        part = OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
        request = OffsetCommitRequest(group_id=name, topics=[OffsetCommitRequestTopic(name="t", partitions=[part])])
        deadline = time.monotonic() + PATIENCE_S
        while code := wire.ask(ApiKey.OFFSET_COMMIT, 1, request).topics[0].partitions[0].error_code:
            assert time.monotonic() < deadline, ErrorCode(code).name
            time.sleep(0.05)
    listed = {group.group_id for group in wire.ask(ApiKey.LIST_GROUPS, 3, ListGroupsRequest()).groups}
    assert listed >= set(names)
    described = wire.ask(ApiKey.DESCRIBE_GROUPS, 3, DescribeGroupsRequest(groups=names)).groups
    assert sorted((group.group_id, group.error_code) for group in described) == [(name, 0) for name in names]


def test_each_broker_has_a_port(cluster: ClusterOfProcesses) -> None:
    """Node ids and leaders are upstream's; a connection to a broker's port reaches that broker and no other."""
    first = free_ports(5)
    with gateway_before(cluster.bootstrap, {"gregor.gateway.broker.ports": f"{first}-{first + 4}"}) as gateway:
        with Wire(("127.0.0.1", gateway.listening[0].port)) as wire:
            answer = wire.ask(ApiKey.METADATA, 1, MetadataRequest(topics=[MetadataRequestTopic(name="t")]))
        assert sorted((broker.node_id, broker.port) for broker in answer.brokers) == [
            (node, first + node) for node in (1, 2, 3)
        ]
        parts = sorted(answer.topics[0].partitions, key=lambda part: part.partition_index)
        assert [part.leader_id for part in parts] == cluster.leaders(1, "t")
        with Wire(("127.0.0.1", first + 2)) as second:
            codes = {index: code for index, (code, _) in produce_to_all(second, b"ports").items()}
        assert codes == {
            part.partition_index: 0 if part.leader_id == 2 else ErrorCode.NOT_LEADER_OR_FOLLOWER for part in parts
        }
        with Wire(("127.0.0.1", first + 4)) as missing, pytest.raises(ConnectionError):
            missing.ask(ApiKey.METADATA, 0, MetadataRequest())


def fetch_by_id(wire: Wire, topic_id: UUID, index: int) -> FetchResponse:
    """Fetch a partition in the first version with hints at the new leader (KIP-951)."""
    part = FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1000)
    answer = wire.ask(ApiKey.FETCH, 16, FetchRequest(topics=[FetchTopic(topic_id=topic_id, partitions=[part])]))
    assert isinstance(answer, FetchResponse)
    return answer


def test_hints_at_the_leader_have_addresses_of_the_gateway(
    cluster: ClusterOfProcesses, gateway: Gateway, wire: Wire
) -> None:
    """Produce v10 and Fetch v16 name the leader where a broker is not the leader."""
    creation = CreatableTopic(name="alone", num_partitions=PARTITIONS, replication_factor=1)
    wire.ask(ApiKey.CREATE_TOPICS, 4, CreateTopicsRequest(topics=[creation], timeout_ms=10000))
    wait_until(lambda: 1 in cluster.leaders(2, "alone") and -1 not in cluster.leaders(2, "alone"))
    named = MetadataRequest(topics=[MetadataRequestTopic(name="alone")])
    topic_id = wire.ask(ApiKey.METADATA, 10, named).topics[0].topic_id
    leaders = cluster.leaders(2, "alone")
    index = leaders.index(1)
    first = free_ports(5)
    with (
        gateway_before(cluster.bootstrap, {"gregor.gateway.broker.ports": f"{first}-{first + 4}"}),
        Wire(("127.0.0.1", first + 2)) as second,
    ):
        fetched = fetch_by_id(second, topic_id, index)
        assert fetched.responses[0].partitions[0].current_leader.leader_id == 1
        records = memoryview(v2.build_batch([Record(0, 1, None, b"v")]))
        data = [TopicProduceData(name="alone", partition_data=[PartitionProduceData(index=index, records=records)])]
        produced = second.ask(ApiKey.PRODUCE, 10, ProduceRequest(acks=1, timeout_ms=5000, topic_data=data))
        for answer in (fetched, produced):
            assert [(node.node_id, node.port) for node in answer.node_endpoints] == [(1, first + 1)]
    # With one address the gateway itself sends a partition to a former leader, here because of wrong metadata.
    wrong = [MetadataResponsePartition(partition_index=n, leader_id=2) for n in range(PARTITIONS)]
    gateway.upstream.learn(
        MetadataResponse(topics=[MetadataResponseTopic(name="alone", topic_id=topic_id, partitions=wrong)])
    )
    fetched = fetch_by_id(wire, topic_id, index)
    part = fetched.responses[0].partitions[0]
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert part.current_leader.leader_id == 0
    assert [(node.node_id, node.port) for node in fetched.node_endpoints] == [(0, gateway.listening[0].port)]
    assert fetch_by_id(wire, topic_id, index).responses[0].partitions[0].error_code == ErrorCode.NONE


def test_only_retriable_errors_are_returned_after_a_broker_was_killed(cluster: ClusterOfProcesses, wire: Wire) -> None:
    """Partitions of other leaders are served at once; those of the killed one as soon as they have a new leader."""
    victim = cluster.brokers[3]
    led = [index for index, leader in enumerate(cluster.leaders(1, "t")) if leader == 3]
    produce_to_all(wire, b"before")
    victim.kill()
    retriable = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS}
    deadline = time.monotonic() + PATIENCE_S
    while True:
        codes = {index: code for index, (code, _) in produce_to_all(wire, b"after").items()}
        assert {code for code in codes.values() if code} <= retriable
        if not any(codes.values()):
            break
        assert {index for index, code in codes.items() if code} <= set(range(PARTITIONS))
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert led, "the killed broker led partitions"
    values = values_of(fetch_all(wire, 2, dict.fromkeys(range(PARTITIONS), 0)))
    assert all(values[index].count(b"before") == 1 for index in range(PARTITIONS))
    victim.start_again()
    cluster.wait_until_all_see_all()


@pytest.mark.parametrize("version", [1, 3, 11])
def test_a_fetch_of_known_and_unknown_partitions_is_answered_for_each(wire: Wire, version: int) -> None:
    """Any broker answers for the unknown ones, perhaps on a connection that the known ones use as well."""
    produce_to_all(wire, b"known")
    for _ in range(3):
        indices = [0, 1, 2, 3, 4, 5, 77]
        parts = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in indices]
        topics = [FetchTopic(topic="missing", partitions=parts[:2]), FetchTopic(topic="t", partitions=parts)]
        answer = wire.ask(ApiKey.FETCH, version, FetchRequest(max_wait_ms=100, min_bytes=1, topics=topics))
        errors = {
            (topic.topic, part.partition_index): part.error_code
            for topic in answer.responses
            for part in topic.partitions
        }
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert errors == {
            **{("t", index): ErrorCode.NONE for index in indices[:-1]},
            ("t", 77): unknown,
            ("missing", 0): unknown,
            ("missing", 1): unknown,
        }


def test_a_consumer_of_partitions_of_several_leaders_reads_every_record_once(cluster: ClusterOfProcesses) -> None:
    """Its fetches are sent ahead to each leader; the gateway converts zstd, so that they are held."""
    settings = {"gregor.message.downconversion.zstd.codec": "gzip", "gregor.gateway.metadata.refresh.ms": "200"}
    create(cluster, 1, "ahead", partitions=PARTITIONS)
    with gateway_before(cluster.bootstrap, settings) as gateway, Wire(("127.0.0.1", gateway.listening[0].port)) as wire:
        chance = random.Random(1)
        for _ in range(60):
            records = [Record(n, 1, None, chance.randbytes(3000)) for n in range(4)]
            data = memoryview(v2.build_batch(records, codec=Codec.ZSTD))
            unwritten = set(range(PARTITIONS))

            def is_written_to_all(data: memoryview = data, unwritten: set[int] = unwritten) -> bool:
                parts = [PartitionProduceData(index=index, records=data) for index in unwritten]
                topics = [TopicProduceData(name="ahead", partition_data=parts)]
                answer = wire.ask(ApiKey.PRODUCE, 7, ProduceRequest(acks=-1, timeout_ms=5000, topic_data=topics))
                unwritten -= {part.index for part in answer.responses[0].partition_responses if not part.error_code}
                return not unwritten

            wait_until(is_written_to_all)
        offsets = dict.fromkeys(range(PARTITIONS), 0)
        was_ahead = False
        while min(offsets.values()) < 240:
            parts_asked = [
                FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=60_000)
                for index, offset in offsets.items()
            ]
            fetch = FetchRequest(
                max_wait_ms=500, min_bytes=1, topics=[FetchTopic(topic="ahead", partitions=parts_asked)]
            )
            for part in wire.ask(ApiKey.FETCH, 2, fetch).responses[0].partitions:
                assert part.error_code == ErrorCode.NONE
                for batch in iter_batches(bytes(part.records)):
                    for record in iter_records(batch):
                        if record.offset >= offsets[part.partition_index]:
                            assert record.offset == offsets[part.partition_index]
                            offsets[part.partition_index] += 1
            was_ahead = was_ahead or gateway.memory.used_bytes > 0
        assert set(offsets.values()) == {240}
        assert was_ahead
