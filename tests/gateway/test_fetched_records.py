"""Records that old consumers must not or cannot have (aborted ones, control batches, batches of zstd), and memory."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from gregor.gateway.fetching.buffer_memory import LEAST_BYTES
from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from gregor.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from gregor.protocol.messages.end_txn import EndTxnRequest
from gregor.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from gregor.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from gregor.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gregor.protocol.records import v1, v2
from gregor.protocol.records.batches import iter_batches, iter_records
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.record import Record
from tests.gateway.kafka_4 import GatewayAndBroker, gateway_before_kafka_4
from tests.gateway.test_old_versions import fetch, message_set, new_topic, produce, records_of
from tests.wire import Wire

NOW_MS = int(time.time() * 1000)
"""The time of all records: a broker begins a new segment where times differ by days."""


def values(wire: Wire, version: int, topic: str, offset: int = 0) -> list[bytes | None]:
    """Return the values that a fetch returns."""
    part = fetch(wire, version, topic, offset)
    assert part.error_code == ErrorCode.NONE
    return [record.value for batch in iter_batches(records_of(part)) for record in iter_records(batch)]


def new_batch(wire: Wire, topic: str, codec: Codec, *values_of_records: bytes) -> None:
    """Write a batch of format v2."""
    records = [Record(n, NOW_MS, None, value) for n, value in enumerate(values_of_records)]
    batch = memoryview(v2.build_batch(records, codec=codec))
    request = ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])],
    )
    assert wire.ask(ApiKey.PRODUCE, 9, request).responses[0].partition_responses[0].error_code == ErrorCode.NONE


class Transactions:
    """A transactional producer with one transaction after the other."""

    def __init__(self, wire: Wire, topic: str, transactional_id: str) -> None:
        self.wire = wire
        self.topic = topic
        self.id = transactional_id
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=10000)
        answer = wire.ask(ApiKey.INIT_PRODUCER_ID, 2, request)
        assert isinstance(answer, InitProducerIdResponse)
        assert answer.error_code == ErrorCode.NONE
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.sequence = 0

    def write(self, value: bytes, *, commits: bool) -> None:
        """Write one record in a transaction."""
        add = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=self.topic, partitions=[0])],
        )
        added = self.wire.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 2, add)
        assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
        batch = v2.build_batch(
            [Record(0, NOW_MS, None, value)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            is_transactional=True,
        )
        self.sequence += 1
        part = PartitionProduceData(index=0, records=memoryview(batch))
        request = ProduceRequest(
            transactional_id=self.id,
            acks=-1,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name=self.topic, partition_data=[part])],
        )
        assert self.wire.ask(ApiKey.PRODUCE, 7, request).responses[0].partition_responses[0].error_code == 0
        end = EndTxnRequest(
            transactional_id=self.id, producer_id=self.producer_id, producer_epoch=self.epoch, committed=commits
        )
        assert self.wire.ask(ApiKey.END_TXN, 2, end).error_code == ErrorCode.NONE


def transactions_then_a_record(wire: Wire, name: str) -> str:
    """Return a topic with an aborted and a committed transaction and, after many empty ends, a plain record."""
    topic = new_topic(wire)
    producer = Transactions(wire, topic, name)
    producer.write(b"aborted", commits=False)
    producer.write(b"committed", commits=True)
    producer.write(b"aborted too", commits=False)
    new_batch(wire, topic, Codec.NONE, b"plain")
    return topic


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_old_consumers_get_aborted_records_as_in_kafka(old: Wire, version: int) -> None:
    """Control batches are removed at each isolation level."""
    topic = transactions_then_a_record(old, f"uncommitted-{version}")
    assert values(old, version, topic) == [b"aborted", b"committed", b"aborted too", b"plain"]


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayAndBroker]:
    """Provide a gateway whose old consumers read committed records only, and get zstd as gzip."""
    settings = {
        "gregor.gateway.isolation.level": "read_committed",
        "gregor.message.downconversion.zstd.codec": "gzip",
        "gregor.gateway.buffer.memory": str(1 << 20),
    }
    with gateway_before_kafka_4(tmp_path_factory.mktemp("committed"), settings) as pair:
        yield pair


@pytest.fixture
def wire(committed: GatewayAndBroker) -> Iterator[Wire]:
    """Provide a client of that gateway."""
    with Wire(committed.address) as connected:
        yield connected


@pytest.mark.parametrize("version", [0, 3])
def test_old_consumers_can_read_committed_records_only(wire: Wire, version: int) -> None:
    """A setting of the gateway, as these versions have no isolation level."""
    topic = transactions_then_a_record(wire, f"committed-{version}")
    assert values(wire, version, topic) == [b"committed", b"plain"]


def test_a_consumer_gets_past_batches_without_records(wire: Wire) -> None:
    """The limit of the fetch ends within the aborted batches: the gateway continues after them."""
    topic = new_topic(wire)
    producer = Transactions(wire, topic, "past")
    for _ in range(20):
        producer.write(bytes(3000), commits=False)
    new_batch(wire, topic, Codec.NONE, b"behind them")
    for _ in range(20):
        part = fetch(wire, 2, topic, 0, max_bytes=4000)
        if found := [record.value for batch in iter_batches(records_of(part)) for record in iter_records(batch)]:
            break
    assert found == [b"behind them"]


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_zstd_is_refused_by_default_and_recompressed_by_a_setting(old: Wire, wire: Wire, version: int) -> None:
    """Clients of these versions have no zstd."""
    refused, topic = new_topic(old), new_topic(wire)
    written = [b"z%d" % n for n in range(40)]
    for connected, name in ((old, refused), (wire, topic)):
        for start in range(0, 40, 10):
            new_batch(connected, name, Codec.ZSTD, *written[start : start + 10])
    assert fetch(old, version, refused).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert read_to_the_end(wire, version, topic, len(written), Codec.GZIP) == written


def read_to_the_end(wire: Wire, version: int, topic: str, count: int, codec: Codec) -> list[bytes | None]:
    """Return the values of a topic all of whose batches reach a client with this codec."""
    found: list[bytes | None] = []
    while len(found) < count:
        # An answer ends where it would be larger than the stored batches.
        batches = list(iter_batches(records_of(fetch(wire, version, topic, len(found)))))
        assert {batch.codec for batch in batches} == {codec}
        found += [record.value for batch in batches for record in iter_records(batch) if record.offset >= len(found)]
    return found


@pytest.mark.parametrize("version", [4, 8, 9])
def test_zstd_is_recompressed_for_readers_of_format_v2_without_zstd(old: Wire, wire: Wire, version: int) -> None:
    """Without the setting only topics with compression.type=zstd are refused, as in Kafka."""
    written = [b"z%d" % n for n in range(40)]
    plain = new_topic(old)
    new_batch(old, plain, Codec.ZSTD, *written)
    assert read_to_the_end(old, version, plain, len(written), Codec.ZSTD) == written
    topics = []
    for connected in (old, wire):
        topic = f"{new_topic(connected)}-zstd"
        config = CreatableTopicConfig(name="compression.type", value="zstd")
        creation = CreatableTopic(name=topic, num_partitions=1, replication_factor=1, configs=[config])
        request = CreateTopicsRequest(topics=[creation], timeout_ms=10000)
        assert connected.ask(ApiKey.CREATE_TOPICS, 4, request).topics[0].error_code == ErrorCode.NONE
        for start in range(0, 40, 10):
            new_batch(connected, topic, Codec.ZSTD, *written[start : start + 10])
        topics.append(topic)
    assert fetch(old, version, topics[0]).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert read_to_the_end(wire, version, topics[1], len(written), Codec.GZIP) == written
    assert read_to_the_end(wire, 10, topics[1], len(written), Codec.ZSTD) == written


def test_fetch_v4_uses_the_isolation_level_of_its_request(wire: Wire) -> None:
    """The gateway's isolation level is for versions that have none."""
    topic = transactions_then_a_record(wire, "chosen")
    found = [
        record.value
        for batch in iter_batches(records_of(fetch(wire, 4, topic)))
        if not batch.is_control
        for record in iter_records(batch)
    ]
    assert found == [b"aborted", b"committed", b"aborted too", b"plain"]


def test_buffer_memory_is_shared_by_clients_and_freed_when_they_disconnect(
    committed: GatewayAndBroker, wire: Wire
) -> None:
    """Each client that does not read holds a part of the memory; after they disconnect, all memory is free."""
    topic = new_topic(wire)
    for _ in range(8):
        produce(wire, 2, topic, b"".join(v1.build_message(n, n, None, bytes(900)) for n in range(100)))
    memory = committed.gateway.memory
    stuck = [Wire(committed.address) for _ in range(40)]
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(max_wait_ms=100, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[part])])
    for client in stuck:
        client.send(ApiKey.FETCH, 0, request)
    assert b"" not in values(wire, 0, topic)
    assert memory.used_bytes <= memory.size_bytes
    for client in stuck:
        client.socket.close()
    produce(wire, 0, topic, message_set(0, 1))
    assert len(values(wire, 0, topic)) >= LEAST_BYTES // 1000
