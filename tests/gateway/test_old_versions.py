"""Every version that Kafka 4 removed, through a gateway in front of a broker that refuses them."""

from __future__ import annotations

import itertools

import pytest

from gregor.protocol.apis import AnyApiKey, ApiKey, request_class
from gregor.protocol.errors import ErrorCode
from gregor.protocol.kafka_4_floor import KAFKA_4_0_0_FLOORS, KAFKA_4_FLOORS
from gregor.protocol.messages.api_versions import ApiVersionsRequest
from gregor.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from gregor.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from gregor.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from gregor.protocol.messages.find_coordinator import FindCoordinatorRequest
from gregor.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from gregor.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from gregor.protocol.messages.metadata import MetadataRequest
from gregor.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from gregor.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from gregor.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from gregor.protocol.records import v0, v1
from gregor.protocol.records.batches import iter_batches, iter_records
from gregor.protocol.records.compression import Codec, compress
from tests.gateway.kafka_4 import GatewayAndBroker
from tests.wire import Wire

REMOVED = [
    (key, version)
    for key, floor in {**KAFKA_4_FLOORS, **KAFKA_4_0_0_FLOORS}.items()
    for version in range(floor.version)
]
_topics = (f"topic-{number}" for number in itertools.count())


def new_topic(wire: Wire, partitions: int = 1) -> str:
    """Return a topic that was created by a version that Kafka 4 removed."""
    name = next(_topics)
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)], timeout_ms=10000
    )
    assert wire.ask(ApiKey.CREATE_TOPICS, 0, request).topics[0].error_code == ErrorCode.NONE
    return name


def produce(wire: Wire, version: int, topic: str, records: bytes, acks: int = -1) -> PartitionProduceResponse:
    """Send a set to partition 0 and return the partition's answer."""
    request = ProduceRequest(
        acks=acks,
        timeout_ms=10000,
        topic_data=[
            TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=memoryview(records))])
        ],
    )
    answer: PartitionProduceResponse = wire.ask(ApiKey.PRODUCE, version, request).responses[0].partition_responses[0]
    return answer


def fetch(wire: Wire, version: int, topic: str, offset: int = 0, max_bytes: int = 1 << 20) -> PartitionData:
    """Fetch partition 0 and return the partition's answer."""
    request = FetchRequest(
        max_wait_ms=100,
        min_bytes=1,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)],
            )
        ],
    )
    if version >= 3:
        request.max_bytes = max_bytes
    answer: PartitionData = wire.ask(ApiKey.FETCH, version, request).responses[0].partitions[0]
    return answer


def records_of(part: PartitionData) -> bytes:
    """Return the bytes of a partition's answer."""
    assert isinstance(part.records, bytes | memoryview)
    return bytes(part.records)


def message_set(magic: int, count: int, codec: Codec = Codec.NONE) -> bytes:
    """Return a set of ``count`` messages as an old producer sends it; all offsets are 0, as 0.8 sent them."""
    if magic == 0:
        messages = b"".join(v0.build_message(0, b"k%d" % n, b"v%d" % n) for n in range(count))
        if codec is not Codec.NONE:
            return v0.build_message(0, None, compress(codec, messages, magic=0), attributes=codec)
        return messages
    messages = b"".join(v1.build_message(n, 1000 + n, b"k%d" % n, b"v%d" % n) for n in range(count))
    if codec is not Codec.NONE:
        return v1.build_message(count - 1, 999 + count, None, compress(codec, messages, magic=1), attributes=codec)
    return messages


@pytest.mark.parametrize(("key", "version"), REMOVED, ids=lambda value: getattr(value, "name", value))
def test_every_removed_version_is_answered(old: Wire, direct: Wire, key: AnyApiKey, version: int) -> None:
    """The broker disconnects such a client; through the gateway it gets an answer."""
    request = request_class(key)()
    with pytest.raises(ConnectionError):
        direct.ask(key, version, request)
    if key is ApiKey.PRODUCE:
        assert isinstance(request, ProduceRequest)
        request.acks = 1
    old.ask(key, version, request)
    assert old.ask(ApiKey.METADATA, 0, MetadataRequest()).brokers, "the connection stays open"


def test_api_versions_are_those_of_upstream_and_the_removed_ones(old: Wire, direct: Wire) -> None:
    """Nothing newer than upstream's is offered, and nothing is missing that Kafka 3.9 served."""
    offered = {entry.api_key: entry for entry in old.ask(ApiKey.API_VERSIONS, 3, ApiVersionsRequest()).api_keys}
    upstream = {entry.api_key: entry for entry in direct.ask(ApiKey.API_VERSIONS, 3, ApiVersionsRequest()).api_keys}
    assert offered.keys() == upstream.keys()
    for key, entry in offered.items():
        assert entry.min_version == 0
        assert entry.max_version == upstream[key].max_version


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_old_message_set_is_stored_as_one_v2_batch(old: Wire, direct: Wire, version: int, codec: Codec) -> None:
    """Records, offsets, timestamps and codec are those that Kafka's leaders would have stored."""
    topic = new_topic(old)
    magic = 1 if version == 2 else 0
    assert produce(old, version, topic, message_set(magic, 5, codec)).base_offset == 0
    answer = produce(old, version, topic, message_set(magic, 3, codec))
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 5)
    batches = list(iter_batches(records_of(fetch(direct, 4, topic))))
    assert [(batch.magic, batch.codec, batch.record_count) for batch in batches] == [(2, codec, 5), (2, codec, 3)]
    records = [record for batch in batches for record in iter_records(batch)]
    assert [record.offset for record in records] == list(range(8))
    assert [record.value for record in records] == [b"v%d" % n for n in (0, 1, 2, 3, 4, 0, 1, 2)]
    times = [1000 + n for n in (0, 1, 2, 3, 4, 0, 1, 2)] if magic else [-1] * 8
    assert [record.timestamp for record in records] == times


def test_a_damaged_set_is_refused_and_the_others_are_appended(old: Wire) -> None:
    """As in Kafka 3.9: each partition has its own answer."""
    topic = new_topic(old, partitions=2)
    damaged = bytearray(message_set(0, 2))
    damaged[-1] ^= 1
    parts = [
        PartitionProduceData(index=0, records=memoryview(bytes(damaged))),
        PartitionProduceData(index=1, records=memoryview(message_set(0, 2))),
    ]
    request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=parts)])
    answers = old.ask(ApiKey.PRODUCE, 0, request).responses[0].partition_responses
    assert [(part.index, part.error_code) for part in answers] == [
        (0, ErrorCode.CORRUPT_MESSAGE),
        (1, ErrorCode.NONE),
    ]


def test_acks_0_has_no_answer(old: Wire) -> None:
    """The next answer on the connection is that of the next request."""
    topic = new_topic(old)
    request = ProduceRequest(
        acks=0,
        topic_data=[
            TopicProduceData(
                name=topic, partition_data=[PartitionProduceData(index=0, records=memoryview(message_set(0, 2)))]
            )
        ],
    )
    old.send(ApiKey.PRODUCE, 0, request)
    assert produce(old, 0, topic, message_set(0, 1), acks=1).base_offset == 2


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_old_fetches_get_their_format(old: Wire, version: int, codec: Codec) -> None:
    """From the first offset and from one in the middle of a batch."""
    topic = new_topic(old)
    produce(old, 2, topic, message_set(1, 50, codec))
    for offset in (0, 20):
        part = fetch(old, version, topic, offset)
        assert (part.error_code, part.high_watermark) == (ErrorCode.NONE, 50)
        batches = list(iter_batches(records_of(part)))
        assert {batch.magic for batch in batches} == {0 if version < 2 else 1}
        records = [record for batch in batches for record in iter_records(batch) if record.offset >= offset]
        assert [record.offset for record in records] == list(range(offset, 50))
        assert [record.value for record in records] == [b"v%d" % n for n in range(offset, 50)]


def test_list_offsets_v0_has_several_offsets(old: Wire) -> None:
    """The end and the start, as Kafka answered for a log of one segment; none before the first record."""
    topic = new_topic(old)

    def ask(timestamp: int, most: int) -> list[int]:
        part = ListOffsetsPartition(partition_index=0, timestamp=timestamp, max_num_offsets=most)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[part])])
        answer = old.ask(ApiKey.LIST_OFFSETS, 0, request).topics[0].partitions[0]
        assert answer.error_code == ErrorCode.NONE
        return list(answer.old_style_offsets)

    assert ask(-1, 10) == [0]
    produce(old, 2, topic, message_set(1, 5))
    assert ask(-1, 10) == [5, 0]
    assert ask(-1, 1) == [5]
    assert ask(-2, 10) == [0]
    assert ask(1003, 10) == [3, 0]
    assert ask(5000, 10) == [5, 0]
    assert ask(10, 10) == []


@pytest.mark.parametrize("version", [0, 1])
def test_old_commits_are_read_by_new_clients(old: Wire, direct: Wire, version: int) -> None:
    """0.8 clients and newer ones continue where the group stopped; v0 has an error if no offset is committed."""
    topic, group = new_topic(old), f"group-{version}"
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=42, committed_metadata="m")
    commit = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[part])])
    assert old.ask(ApiKey.OFFSET_COMMIT, version, commit).topics[0].partitions[0].error_code == ErrorCode.NONE
    fetch_offsets = OffsetFetchRequest(
        group_id=group, topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[0])]
    )
    for wire, asked in ((old, 0), (old, 1), (direct, 1)):
        found = wire.ask(ApiKey.OFFSET_FETCH, asked, fetch_offsets).topics[0].partitions[0]
        assert (found.committed_offset, found.metadata, found.error_code) == (42, "m", 0)
    nothing = OffsetFetchRequest(group_id="none", topics=fetch_offsets.topics)
    found = old.ask(ApiKey.OFFSET_FETCH, 0, nothing).topics[0].partitions[0]
    assert (found.committed_offset, found.error_code) == (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@pytest.mark.parametrize("version", [0, 1])
def test_join_group_v0_and_v1_succeed_without_member_id_required(old: Wire, version: int) -> None:
    """The first join has its answer at once, as no group before v4 knows MEMBER_ID_REQUIRED."""
    request = JoinGroupRequest(
        group_id=f"members-{version}",
        session_timeout_ms=10000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    if version:
        request.rebalance_timeout_ms = 10000
    answer = old.ask(ApiKey.JOIN_GROUP, version, request)
    assert (answer.error_code, answer.leader) == (ErrorCode.NONE, answer.member_id)


def test_describe_configs_v0_says_what_is_default(old: Wire) -> None:
    """`is_default` is computed from the source that newer versions name."""
    topic = new_topic(old)
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=2, resource_name=topic, configuration_keys=["cleanup.policy"])]
    )
    (config,) = old.ask(ApiKey.DESCRIBE_CONFIGS, 0, request).results[0].configs
    assert (config.name, config.is_default) == ("cleanup.policy", True)


def test_metadata_names_the_gateway(pair: GatewayAndBroker, old: Wire) -> None:
    """Clients come back to the gateway, under its node id."""
    topic = new_topic(old, partitions=3)
    for version in (0, 1, 9, 12):
        answer = old.ask(ApiKey.METADATA, version, MetadataRequest(topics=[]))
        assert [(broker.node_id, broker.host, broker.port) for broker in answer.brokers] == [(0, *pair.address)]
        if version == 0:
            parts = next(found for found in answer.topics if found.name == topic).partitions
            assert {(part.leader_id, *part.replica_nodes, *part.isr_nodes) for part in parts} == {(0, 0, 0)}


@pytest.mark.parametrize("version", range(7))
def test_the_gateway_is_the_coordinator(pair: GatewayAndBroker, old: Wire, version: int) -> None:
    """One key, or several keys from v4 on."""
    request = FindCoordinatorRequest(key="g") if version < 4 else FindCoordinatorRequest(coordinator_keys=["g", "h"])
    answer = old.ask(ApiKey.FIND_COORDINATOR, version, request)
    found = [answer] if version < 4 else answer.coordinators
    assert [(each.node_id, each.host, each.port) for each in found] == [(0, *pair.address)] * len(found)


@pytest.mark.parametrize("version", [1, 4])
def test_broker_configs_are_described_for_the_node_id_of_the_gateway(old: Wire, version: int) -> None:
    """Tools ask for the node id that Metadata shows them."""
    resource = DescribeConfigsResource(resource_type=4, resource_name="0", configuration_keys=["log.retention.hours"])
    request = DescribeConfigsRequest(resources=[resource])
    (result,) = old.ask(ApiKey.DESCRIBE_CONFIGS, version, request).results
    assert (result.error_code, result.resource_name) == (ErrorCode.NONE, "0")
    assert [config.name for config in result.configs] == ["log.retention.hours"]
