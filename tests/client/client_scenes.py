"""Operations of producers and consumers, with the results that any Kafka must give."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from gregor.client import Admin, Consumer, Delivery, Producer
from gregor.client.consumer.consumer_record import ConsumerRecord
from gregor.protocol.records import v2
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.record import Header, Record
from gregor.protocol.topic_partition import AnyTopicPartition
from tests.client.topics import new_topic

ClientScene = Callable[[str], Awaitable[None]]


async def read(bootstrap: str, topic: str, partitions: int = 1, **config: object) -> list[ConsumerRecord]:
    """Return all records up to the ends as they are now."""
    records: list[ConsumerRecord] = []
    places = [(topic, partition) for partition in range(partitions)]
    async with Consumer(bootstrap, auto_offset_reset="earliest", **config) as consumer:
        ends = await consumer.end_offsets(places)
        consumer.assign(places)
        while any((consumer.position(*place) or 0) < end for place, end in ends.items()):
            records += await consumer.poll(200)
    return records


async def every_codec(bootstrap: str) -> None:
    topic = await new_topic(bootstrap)
    sent: list[Delivery] = []
    for codec in Codec:
        async with Producer(bootstrap, compression_type=codec.name.lower(), linger_ms=5) as producer:
            sent += [await producer.send(topic, b"v%d" % n, key=b"k", headers=[("h", b"x")]) for n in range(200)]
    assert [delivery.offset for delivery in sent] == list(range(len(sent)))
    records = await read(bootstrap, topic)
    assert [record.value for record in records] == [b"v%d" % n for n in range(200)] * len(Codec)
    assert records[0].headers == (Header(b"h", b"x"),)


async def too_large_batches_are_split(bootstrap: str) -> None:
    """The limit is that of messages, or of segments, for which Kafka answers RECORD_LIST_TOO_LARGE."""
    values = [b"%03d" % n * 100 for n in range(50)]
    for limits in ({"max_message_bytes": "2000"}, {"segment_bytes": "2000"}):
        topic = await new_topic(bootstrap, 1, **limits)
        async with Producer(bootstrap, linger_ms=60_000) as producer:
            deliveries = []
            for _ in range(2):
                deliveries += [await producer.send(topic, value) for value in values]
                await producer.flush()
            assert producer.metrics().value("batch-split-total") > 0
        assert all(delivery.error is None for delivery in deliveries)
        assert [record.value for record in await read(bootstrap, topic)] == 2 * values


async def transactions(bootstrap: str) -> None:
    topic = await new_topic(bootstrap, 2)
    group_id = f"g-{topic}"

    async def fail(producer: Producer) -> None:
        async with producer.transaction():
            await producer.send(topic, b"dropped", partition=0)
            await producer.flush()
            raise ZeroDivisionError

    async with Producer(bootstrap, transactional_id=topic) as producer:
        for n in range(3):
            async with producer.transaction():
                await producer.send(topic, b"%d" % n, partition=0)
                await producer.send(topic, b"%d" % n, partition=1)
                await producer.send_offsets_to_transaction(group_id, {(topic, 0): n + 1})
            with pytest.raises(ZeroDivisionError):
                await fail(producer)
    committed = await read(bootstrap, topic, 2, isolation_level="read_committed")
    assert sorted(record.value or b"" for record in committed) == [b"0", b"0", b"1", b"1", b"2", b"2"]
    assert len(await read(bootstrap, topic, 2)) == 9
    async with Admin(bootstrap) as admin:
        assert await admin.group_offsets(group_id) == {(topic, 0): 3}


async def raw_batches(bootstrap: str) -> None:
    topic = await new_topic(bootstrap)
    records = [Record(n, 1_700_000_000_000, b"k", b"%d" % n) for n in range(10)]
    async with Producer(bootstrap) as producer:
        for codec in Codec:
            raw = v2.build_batch(records, codec=codec, producer_id=5, producer_epoch=0, base_sequence=7)
            await producer.send_batch(topic, 0, raw)
    assert [record.value for record in await read(bootstrap, topic)] == [b"%d" % n for n in range(10)] * len(Codec)


async def _share_and_take_over(bootstrap: str, **config: object) -> None:
    topic = await new_topic(bootstrap, 4)
    settings = {"group_id": f"g-{topic}", "auto_offset_reset": "earliest", "heartbeat_interval_ms": 100, **config}
    revoked: list[AnyTopicPartition] = []

    async def on_revoked(places: list[AnyTopicPartition]) -> None:
        revoked.extend(places)

    async def until_assigned(consumer: Consumer, count: int) -> None:
        while len(consumer.assignment()) != count:
            await consumer.poll(20)

    async with Producer(bootstrap) as producer, Consumer(bootstrap, **settings) as first:
        first.subscribe([topic], on_revoked=on_revoked)
        await until_assigned(first, 4)
        async with Consumer(bootstrap, **settings) as second:
            second.subscribe([topic])
            async with trio.open_nursery() as nursery:
                nursery.start_soon(until_assigned, first, 2)
                nursery.start_soon(until_assigned, second, 2)
            assert not set(first.assignment()) & set(second.assignment())
        if config.get("partition_assignment_strategy") != "range":
            assert len(set(revoked)) == 2, "a cooperative rebalance revokes only partitions that move"
        await until_assigned(first, 4)
        for n in range(4):
            await (await producer.send(topic, b"%d" % n, partition=n))
        seen: list[bytes | None] = []
        while len(seen) < 4:
            seen += [record.value for record in await first.poll()]
        await first.commit()
    assert set(revoked) == {(topic, partition) for partition in range(4)}, "closing revokes all partitions"


async def eager_group(bootstrap: str) -> None:
    await _share_and_take_over(bootstrap, partition_assignment_strategy="range")


async def cooperative_group(bootstrap: str) -> None:
    await _share_and_take_over(bootstrap, partition_assignment_strategy="cooperative-sticky")


async def seek_pause_and_times(bootstrap: str) -> None:
    topic = await new_topic(bootstrap, 2, retention_ms="-1")
    async with Producer(bootstrap) as producer:
        for n in range(100):
            await producer.send(topic, b"%d" % n, partition=n % 2, timestamp_ms=1_700_000_000_000 + n)
    places = [(topic, 0), (topic, 1)]
    async with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign(places)
        consumer.pause((topic, 1))
        assert {record.partition for record in await consumer.poll()} == {0}
        consumer.resume((topic, 1))
        consumer.seek(topic, 0, 40)
        consumer.seek(topic, 1, 45)
        seen: list[ConsumerRecord] = []
        while len(seen) < 15:
            seen += await consumer.poll()
        assert sorted(record.offset for record in seen) == sorted([*range(40, 50), *range(45, 50)])
        found = await consumer.offsets_for_times(dict.fromkeys(places, 1_700_000_000_000 + 51))
        assert [entry.offset for entry in found.values() if entry] == [26, 25]
        assert await consumer.beginning_offsets(places) == dict.fromkeys(places, 0)
        await consumer.seek_to_end()
        while consumer.current_lag(topic, 0) != 0:
            assert await consumer.poll(50) == []


CLIENT_SCENES: list[ClientScene] = [
    every_codec,
    too_large_batches_are_split,
    transactions,
    raw_batches,
    eager_group,
    cooperative_group,
    seek_pause_and_times,
]
