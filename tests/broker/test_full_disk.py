"""A full disk: the kernel refuses one partition's file, and only that partition is affected."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from gregor.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from gregor.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gregor.protocol.records import v2
from gregor.protocol.records.batches import iter_batches, iter_records
from gregor.protocol.records.record import Record
from tests.broker_process import BrokerProcess, running_broker
from tests.wire import Wire, produce_once_there_is_a_leader

VALUE_BYTES = 1000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with running_broker(tmp_path) as broker:
        with Wire(broker.address) as wire:
            topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1)
            wire.ask(ApiKey.CREATE_TOPICS, 4, CreateTopicsRequest(topics=[topic], timeout_ms=9000))
        yield broker


def produce(wire: Wire, number: int, *, partition: int) -> int:
    data = v2.build_batch([Record(0, 1, b"%d" % number, b"x" * VALUE_BYTES)])
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=partition, records=data)])
    return produce_once_there_is_a_leader(wire, ProduceRequest(acks=-1, timeout_ms=9000, topic_data=[topic]))


def keys(wire: Wire, partition: int) -> list[tuple[int, bytes | None]]:
    topic = FetchTopic(topic="t", partitions=[FetchPartition(partition=partition, partition_max_bytes=1 << 20)])
    answer = wire.ask(ApiKey.FETCH, 11, FetchRequest(max_bytes=1 << 20, topics=[topic]))
    records = answer.responses[0].partitions[0].records or b""
    return [(record.offset, record.key) for batch in iter_batches(records) for record in iter_records(batch)]


def test_one_partition_fails_and_the_others_go_on(broker: BrokerProcess) -> None:
    log = broker.directory / "logs" / "t-0" / f"{0:020d}.log"
    expected = [(number, b"%d" % number) for number in range(10)]
    with Wire(broker.address) as wire:
        for number in range(10):
            assert produce(wire, number, partition=0) == ErrorCode.NONE
        # The disk has room for half of a batch.
        limit_bytes = log.stat().st_size + VALUE_BYTES // 2
        _, hard = resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (limit_bytes, resource.RLIM_INFINITY))
        for _ in range(3):
            assert produce(wire, 10, partition=0) == ErrorCode.KAFKA_STORAGE_ERROR
        for number in range(3):
            assert produce(wire, number, partition=1) == ErrorCode.NONE
        assert keys(wire, 0) == expected
        assert len(keys(wire, 1)) == 3
        assert log.stat().st_size < limit_bytes, "no bytes of the failed append remain"
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (hard, hard))
        assert produce(wire, 10, partition=0) == ErrorCode.NONE
        assert keys(wire, 0) == [*expected, (10, b"10")]
    broker.kill()
    broker.start_again()
    with Wire(broker.address) as wire:
        assert keys(wire, 0) == [*expected, (10, b"10")]
