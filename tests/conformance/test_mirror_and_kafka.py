"""The mirror between Gregor and Apache Kafka 3.9.1, both ways."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
import trio

from gregor.client import Admin, Producer
from gregor.client.admin import ResourceType
from tests.broker_process import running_broker
from tests.client.mirroring.scenes import (
    contents,
    create,
    difference,
    fill,
    killed_again_and_again,
    mirror_once,
    read_all,
    send_old_formats,
)
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.peer


@pytest.fixture(scope="module")
def gregor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    overrides = ("offsets.topic.num.partitions=1", "transaction.state.log.num.partitions=1")
    with running_broker(tmp_path_factory.mktemp("gregor"), *overrides) as broker:
        yield broker.bootstrap


async def test_kills_of_the_mirror_to_kafka_lose_and_duplicate_no_records(gregor: str, kafka_391: str) -> None:
    await killed_again_and_again(gregor, kafka_391, "to-kafka")
    assert await difference(gregor, kafka_391, "to-kafka", 3) is None


async def test_a_topic_is_mirrored_from_kafka(kafka_391: str, gregor: str) -> None:
    await create(kafka_391, "from-kafka", 3, retention_ms="123456789")
    for seed in range(2):
        await fill(kafka_391, "from-kafka", 3, 3_000, seed=seed)
        await mirror_once(kafka_391, gregor, "from-kafka")
        assert await difference(kafka_391, gregor, "from-kafka", 3) is None
    async with Admin(gregor) as admin:
        (entry,) = await admin.describe_configs(ResourceType.TOPIC, "from-kafka", ["retention.ms"])
        assert entry.value == "123456789"


async def test_a_topic_is_mirrored_from_kafka_with_its_offsets(kafka_391: str, gregor: str) -> None:
    await create(kafka_391, "kept-from-kafka", 1)
    for seed in range(2):
        await fill(kafka_391, "kept-from-kafka", 1, 3_000, seed=seed)
        await mirror_once(kafka_391, gregor, "kept-from-kafka", keeps_offsets=True)
        wanted = (await read_all(kafka_391, "kept-from-kafka", 1, isolation_level="read_committed"))[0]
        found = (await read_all(gregor, "kept-from-kafka", 1))[0]
        assert contents(found) == contents(wanted)
        assert [record.offset for record in found] == [record.offset for record in wanted]


async def test_a_compacted_topic_is_mirrored_from_kafka(kafka_391: str, gregor: str) -> None:
    topic = "compacted-from-kafka"
    await create(
        kafka_391,
        topic,
        cleanup_policy="compact",
        segment_bytes="20000",
        min_cleanable_dirty_ratio="0.01",
        segment_ms="100",
    )
    async with Producer(kafka_391, linger_ms=5, batch_size=4_000, compression_type="lz4") as producer:
        for n in range(4_000):
            key = b"k%d" % (n if n % 10 == 0 else n % 7)
            await producer.send(topic, Random(n).randbytes(50), key=key, partition=0)
    with trio.fail_after(PATIENCE_S):
        remaining = 4_000
        while remaining > 2_000:
            remaining = len((await read_all(kafka_391, topic, 1))[0])
    await mirror_once(kafka_391, gregor, topic)
    wanted, found = (await read_all(kafka_391, topic, 1))[0], (await read_all(gregor, topic, 1))[0]
    assert {r.key: (r.timestamp, r.value) for r in found} == {r.key: (r.timestamp, r.value) for r in wanted}


async def test_old_formats_are_mirrored_to_kafka(gregor: str, kafka_391: str) -> None:
    """Kafka 3.9 brings them into its newest format, one record for each."""
    await create(gregor, "old-formats")
    await send_old_formats(gregor, "old-formats")
    await mirror_once(gregor, kafka_391, "old-formats")
    assert await difference(gregor, kafka_391, "old-formats", 1) is None
