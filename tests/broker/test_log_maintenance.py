"""Log maintenance in a running broker: retention, flushes, expired producers, changes at run time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gregor.client import Admin
from gregor.client.admin import AlterOperation, NewTopic, ResourceType
from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from gregor.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from gregor.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from gregor.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gregor.protocol.records import v2
from gregor.protocol.records.record import Record
from tests.broker_process import BrokerProcess, running_broker
from tests.waiting import eventually
from tests.wire import Wire, produce_once_there_is_a_leader

EARLIEST = -2
LONG_AGO_MS = 1_600_000_000_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with running_broker(
        tmp_path,
        "log.initial.task.delay.ms=0",
        "log.retention.check.interval.ms=20",
        "log.flush.scheduler.interval.ms=20",
        "log.flush.offset.checkpoint.interval.ms=20",
        "producer.id.expiration.check.interval.ms=20",
        "log.segment.delete.delay.ms=0",
        "log.retention.ms=-1",
    ) as broker:
        yield broker


async def create(broker: BrokerProcess, **settings: str) -> None:
    configs = {key.replace("_", "."): value for key, value in settings.items()}
    async with Admin(broker.bootstrap) as admin:
        await admin.create_topics([NewTopic("t", 1, 1, configs)])


async def change(broker: BrokerProcess, key: str, value: str, kind: ResourceType = ResourceType.TOPIC) -> None:
    async with Admin(broker.bootstrap) as admin:
        name = "t" if kind is ResourceType.TOPIC else ""
        await admin.alter_configs(kind, name, [(AlterOperation.SET, key, value)])


def write(wire: Wire, count: int, size_bytes: int = 100, **more: Any) -> None:
    for number in range(count):
        data = v2.build_batch([Record(0, LONG_AGO_MS + number, b"k", b"x" * size_bytes)], **more)
        partition = PartitionProduceData(index=0, records=data)
        topic = TopicProduceData(name="t", partition_data=[partition])
        request = ProduceRequest(acks=-1, timeout_ms=9000, topic_data=[topic])
        assert produce_once_there_is_a_leader(wire, request) == ErrorCode.NONE


def first_offset(wire: Wire) -> int:
    partition = ListOffsetsPartition(partition_index=0, timestamp=EARLIEST)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[partition])])
    offset: int = wire.ask(ApiKey.LIST_OFFSETS, 5, request).topics[0].partitions[0].offset
    return offset


def producers(wire: Wire) -> list[int]:
    request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])])
    found = wire.ask(ApiKey.DESCRIBE_PRODUCERS, 0, request).topics[0].partitions[0]
    return [producer.producer_id for producer in found.active_producers]


def segments(broker: BrokerProcess) -> list[Path]:
    return sorted((broker.directory / "logs" / "t-0").glob("*.log"))


def allocated_bytes(broker: BrokerProcess) -> int:
    return sum(path.stat().st_blocks for path in segments(broker)) * 512


async def test_retention_by_time_changes_at_run_time(broker: BrokerProcess) -> None:
    await create(broker, segment_bytes="1000")
    with Wire(broker.address) as wire:
        write(wire, 50)
        assert first_offset(wire) == 0
        await change(broker, "retention.ms", "1000")
        await eventually(lambda: first_offset(wire) == 50)
        await eventually(lambda: len(segments(broker)) == 1)


async def test_retention_by_size_changes_at_run_time(broker: BrokerProcess) -> None:
    await create(broker, segment_bytes="1000")
    with Wire(broker.address) as wire:
        write(wire, 50)
        await change(broker, "retention.bytes", "3000")
        await eventually(lambda: len(segments(broker)) <= 5)
        assert 0 < first_offset(wire) < 50
        await change(broker, "log.retention.bytes", "100", ResourceType.BROKER)
        assert len(segments(broker)) > 1, "the topic's own setting prevails"


async def test_segment_bytes_change_at_run_time(broker: BrokerProcess) -> None:
    await create(broker)
    with Wire(broker.address) as wire:
        write(wire, 50)
        assert len(segments(broker)) == 1
        await change(broker, "segment.bytes", "1000")
        write(wire, 50)
        assert len(segments(broker)) > 5


async def test_segment_ms_changes_at_run_time(broker: BrokerProcess) -> None:
    await create(broker)
    with Wire(broker.address) as wire:
        write(wire, 5)
        await change(broker, "segment.ms", "2")
        write(wire, 5)
        assert len(segments(broker)) > 1


async def test_deleted_records_give_their_space_back(broker: BrokerProcess) -> None:
    await create(broker)
    with Wire(broker.address) as wire:
        write(wire, 40, size_bytes=100_000)
        before_bytes = allocated_bytes(broker)
        size_bytes = segments(broker)[0].stat().st_size
        partition = DeleteRecordsPartition(partition_index=0, offset=30)
        topics = [DeleteRecordsTopic(name="t", partitions=[partition])]
        wire.ask(ApiKey.DELETE_RECORDS, 1, DeleteRecordsRequest(topics=topics, timeout_ms=9000))
        assert first_offset(wire) == 30
        await eventually(lambda: allocated_bytes(broker) < before_bytes / 2)
        assert segments(broker)[0].stat().st_size == size_bytes, "a hole in the active segment"
        write(wire, 1)
        broker.kill()
    broker.start_again()
    with Wire(broker.address) as wire:
        assert first_offset(wire) == 30
    assert allocated_bytes(broker) < before_bytes / 2


async def test_producers_expire_when_the_configuration_says(broker: BrokerProcess) -> None:
    await create(broker)
    with Wire(broker.address) as wire:
        write(wire, 1, producer_id=7, producer_epoch=0, base_sequence=0)
        assert producers(wire) == [7]
        await change(broker, "producer.id.expiration.ms", "1", ResourceType.BROKER)
        await eventually(lambda: not producers(wire))
        # The producer's state is removed, so any sequence may follow (KIP-360).
        write(wire, 1, producer_id=7, producer_epoch=0, base_sequence=40)


async def test_flush_ms_moves_the_recovery_point(broker: BrokerProcess) -> None:
    await create(broker, flush_ms="20")
    checkpoint = broker.directory / "logs" / "recovery-point-offset-checkpoint"
    with Wire(broker.address) as wire:
        write(wire, 3)
    await eventually(lambda: checkpoint.exists() and "t 0 3\n" in checkpoint.read_text())
