"""Compaction in a running broker: remaining records, tombstones, __consumer_offsets, stops and kills."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
import trio

from gregor.client import Admin, Consumer, Producer
from gregor.client.admin import AlterOperation, NewTopic, ResourceType
from gregor.client.consumer.consumer_record import ConsumerRecord
from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from gregor.protocol.topic_partition import TopicPartition
from gregor.storage.disk.checkpoints import read_offsets
from gregor.storage.disk.files import OsFiles
from tests.broker_process import BrokerProcess, running_broker
from tests.waiting import PATIENCE_S, eventually
from tests.wire import Wire

SEGMENT_BYTES = 4000
KEYS = 10
AT_ONCE = {"cleanup.policy": "compact", "segment.bytes": str(SEGMENT_BYTES), "min.cleanable.dirty.ratio": "0.01"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with running_broker(
        tmp_path,
        "group.initial.rebalance.delay.ms=0",
        "offsets.topic.num.partitions=1",
        f"offsets.topic.segment.bytes={SEGMENT_BYTES}",
        "log.initial.task.delay.ms=0",
        "log.cleaner.backoff.ms=20",
        "log.cleaner.min.cleanable.ratio=0.01",
    ) as broker:
        yield broker


def partition_directory(broker: BrokerProcess, topic: str) -> Path:
    return broker.directory / "logs" / f"{topic}-0"


def active_base(broker: BrokerProcess, topic: str) -> int:
    return max(int(path.stem) for path in partition_directory(broker, topic).glob("*.log"))


def is_clean(broker: BrokerProcess, topic: str) -> bool:
    """Return whether all but the active segment is."""
    checkpoint = broker.directory / "logs" / "cleaner-offset-checkpoint"
    if not checkpoint.exists():
        return False
    clean_until = read_offsets(OsFiles(), str(checkpoint)).get(TopicPartition(topic, 0), 0)
    return clean_until >= active_base(broker, topic)


async def create(broker: BrokerProcess, **settings: str) -> str:
    name = f"compacted-{uuid4().hex[:8]}"
    configs = AT_ONCE | {key.replace("_", "."): value for key, value in settings.items()}
    async with Admin(broker.bootstrap) as admin:
        await admin.create_topics([NewTopic(name, 1, 1, configs)])
    return name


async def write(broker: BrokerProcess, topic: str, first: int, count: int) -> None:
    """Write the records `first` to `first` + `count`, one in each batch, with keys in turn."""
    async with Producer(broker.bootstrap, batch_size=1) as producer:
        for number in range(first, first + count):
            await producer.send(topic, b"value %d" % number, key=b"key %d" % (number % KEYS))


async def read(broker: BrokerProcess, topic: str) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    async with Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        end = (await consumer.end_offsets([TopicPartition(topic, 0)]))[TopicPartition(topic, 0)]
        with trio.fail_after(PATIENCE_S):
            while not records or records[-1].offset < end - 1:
                records += await consumer.poll(100)
    return records


def check(records: list[ConsumerRecord], count: int) -> None:
    """Check that offsets have not changed and that the last value of each key is there."""
    assert all(record.value == b"value %d" % record.offset for record in records)
    latest = {record.key: record.offset for record in records}
    assert latest == {b"key %d" % key: count - KEYS + key for key in range(KEYS)}


async def set_topic(broker: BrokerProcess, topic: str, key: str, value: str) -> None:
    async with Admin(broker.bootstrap) as admin:
        await admin.alter_configs(ResourceType.TOPIC, topic, [(AlterOperation.SET, key, value)])


async def set_broker(broker: BrokerProcess, key: str, value: str) -> None:
    async with Admin(broker.bootstrap) as admin:
        await admin.alter_configs(ResourceType.BROKER, "", [(AlterOperation.SET, key, value)])


async def test_the_last_record_of_each_key_stays(broker: BrokerProcess) -> None:
    topic = await create(broker)
    await write(broker, topic, 0, 500)
    await eventually(lambda: is_clean(broker, topic))
    records = await read(broker, topic)
    check(records, 500)
    assert len(records) < 150
    assert broker.stop() == 0
    broker.start_again()
    assert await read(broker, topic) == records


async def test_tombstones_are_removed_after_delete_retention_ms(broker: BrokerProcess) -> None:
    topic = await create(broker, delete_retention_ms="86400000")
    async with Producer(broker.bootstrap, batch_size=1) as producer:
        for key in range(KEYS):
            await producer.send(topic, None, key=b"gone %d" % key)
    await write(broker, topic, KEYS, 190)
    await eventually(lambda: is_clean(broker, topic))
    assert sum(record.value is None for record in await read(broker, topic)) == KEYS
    # Another compaction is needed: the first one has only written the delete horizon (KIP-534).
    topic = await create(broker, delete_retention_ms="0")
    async with Producer(broker.bootstrap, batch_size=1) as producer:
        for key in range(KEYS):
            await producer.send(topic, None, key=b"gone %d" % key)
    for first in (KEYS, 200):
        await write(broker, topic, first, 200 - first % 200)
        await eventually(lambda: is_clean(broker, topic))
    records = await read(broker, topic)
    check(records, 400)


async def test_compaction_begins_when_the_topic_configuration_changes_to_compact(broker: BrokerProcess) -> None:
    topic = await create(broker, cleanup_policy="delete", min_cleanable_dirty_ratio="1")
    await write(broker, topic, 0, 300)
    assert len(await read(broker, topic)) == 300
    await set_topic(broker, topic, "cleanup.policy", "compact")
    await set_topic(broker, topic, "min.cleanable.dirty.ratio", "0")
    await eventually(lambda: is_clean(broker, topic))
    records = await read(broker, topic)
    check(records, 300)
    assert len(records) < 150


def commit(broker: BrokerProcess, count: int) -> None:
    """Commit offsets 0 to `count` - 1 for a group that has no members."""
    with Wire(broker.address) as wire:
        for offset in range(count):
            partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
            topic = OffsetCommitRequestTopic(name="read", partitions=[partition])
            request = OffsetCommitRequest(group_id="group", topics=[topic])
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            while code != ErrorCode.NONE:
                code = wire.ask(ApiKey.OFFSET_COMMIT, 7, request).topics[0].partitions[0].error_code
                assert code in (ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)


async def test_committed_offsets_take_bounded_space(broker: BrokerProcess) -> None:
    async with Admin(broker.bootstrap) as admin:
        await admin.create_topics([NewTopic("read", 1, 1)])
    commit(broker, 600)
    offsets_topic = "__consumer_offsets"
    await eventually(lambda: is_clean(broker, offsets_topic))
    size_bytes = sum(path.stat().st_size for path in partition_directory(broker, offsets_topic).glob("*.log"))
    assert size_bytes < 3 * SEGMENT_BYTES
    broker.kill()
    broker.start_again()
    place = TopicPartition("read", 0)
    async with Consumer(broker.bootstrap, group_id="group", enable_auto_commit=False) as consumer:
        assert await consumer.committed(place) == {place: 599}


@pytest.mark.slow
async def test_a_kill_in_the_middle_of_a_compaction_loses_nothing(broker: BrokerProcess) -> None:
    topic = await create(broker, min_cleanable_dirty_ratio="1", cleanup_policy="delete")
    await write(broker, topic, 0, 500)
    before = await read(broker, topic)
    await set_broker(broker, "log.cleaner.io.max.bytes.per.second", "8000")
    await set_topic(broker, topic, "min.cleanable.dirty.ratio", "0")
    await set_topic(broker, topic, "cleanup.policy", "compact")
    directory = partition_directory(broker, topic)
    for _ in range(2):
        await eventually(lambda: any(directory.glob("*.cleaned")))
        broker.kill()
        broker.start_again()
        assert await read(broker, topic) == before
    await set_broker(broker, "log.cleaner.io.max.bytes.per.second", "1000000000")
    await eventually(lambda: is_clean(broker, topic))
    assert not any(directory.glob("*.cleaned"))
    check(await read(broker, topic), 500)


async def test_a_stop_does_not_wait_for_a_compaction(broker: BrokerProcess) -> None:
    topic = await create(broker)
    await set_broker(broker, "log.cleaner.io.max.bytes.per.second", "8000")
    await write(broker, topic, 0, 200)
    directory = partition_directory(broker, topic)
    await eventually(lambda: any(directory.glob("*.cleaned")))
    assert broker.stop() == 0
    assert not any(directory.glob("*.cleaned"))
    broker.start_again()
    check(await read(broker, topic), 200)
