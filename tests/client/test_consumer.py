"""The consumer against a broker process: positions, groups, old protocol versions, transactions, faults."""

from __future__ import annotations

import re

import pytest
import trio

from gregor.client import Consumer, Producer
from gregor.client.consumer.consumer_record import ConsumerRecord
from gregor.client.errors import ConfigError
from gregor.client.wire.offset_lookup import OffsetAndTimestamp
from gregor.protocol.errors import BrokerError
from gregor.protocol.records.enriched import KafkaTags
from gregor.protocol.records.tagged_batches import TaggedBatch
from tests.broker_process import BrokerProcess
from tests.client.topics import filled_topic
from tests.waiting import PATIENCE_S


async def test_iteration_hands_out_all_in_order(broker_process: BrokerProcess) -> None:
    topic = await filled_topic(broker_process.bootstrap, count=2_000)
    seen = []
    async with Consumer(broker_process.bootstrap, auto_offset_reset="earliest", max_poll_records=7) as consumer:
        consumer.assign([(topic, 0)])
        with trio.fail_after(PATIENCE_S):
            async for record in consumer:
                seen.append(record.value)
                assert consumer.position(topic, 0) == record.offset + 1
                if len(seen) == 2_000:
                    break
    assert seen == [b"%d" % n for n in range(2_000)]


async def test_latest_waits_for_new_records(broker_process: BrokerProcess) -> None:
    topic = await filled_topic(broker_process.bootstrap)
    async with Consumer(broker_process.bootstrap) as consumer:
        consumer.assign([(topic, 0)])
        while consumer.position(topic, 0) is None:
            assert await consumer.poll(20) == []
        async with Producer(broker_process.bootstrap) as producer:
            await producer.send(topic, b"new")
        with trio.fail_after(PATIENCE_S):
            assert [record.value for record in await consumer.poll()] == [b"new"]


async def test_seek_pause_and_resume(broker_process: BrokerProcess) -> None:
    topic = await filled_topic(broker_process.bootstrap, partitions=2)
    async with Consumer(broker_process.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0), (topic, 1)])
        consumer.pause((topic, 0))
        with trio.fail_after(PATIENCE_S):
            records = await consumer.poll()
        assert {record.partition for record in records} == {1}
        consumer.resume((topic, 0))
        consumer.pause((topic, 1))
        consumer.seek(topic, 0, 40)
        with trio.fail_after(PATIENCE_S):
            assert (await consumer.poll(max_records=1))[0].offset == 40
        await consumer.seek_to_beginning((topic, 0))
        assert (await consumer.poll(max_records=1))[0].offset == 0
        await consumer.seek_to_end((topic, 0))
        assert consumer.position(topic, 0) == 50
        with pytest.raises(KeyError):
            consumer.seek("other", 0, 0)


async def test_a_position_out_of_range_is_reset_or_raised(broker_process: BrokerProcess) -> None:
    topic = await filled_topic(broker_process.bootstrap)
    async with Consumer(broker_process.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        consumer.seek(topic, 0, 10_000)
        with trio.fail_after(PATIENCE_S):
            assert (await consumer.poll())[0].offset == 0
    async with Consumer(broker_process.bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign([(topic, 0)])
        with trio.fail_after(PATIENCE_S), pytest.raises(BrokerError, match="OFFSET_OUT_OF_RANGE"):
            await consumer.poll()


async def test_beginning_end_and_timestamp_offsets_are_looked_up(broker_process: BrokerProcess) -> None:
    topic = await filled_topic(broker_process.bootstrap)
    async with Consumer(broker_process.bootstrap) as consumer:
        place = (topic, 0)
        assert await consumer.beginning_offsets([place]) == {place: 0}
        assert await consumer.end_offsets([place]) == {place: 100}
        found = await consumer.offsets_for_times({place: 1042})
        assert found == {place: OffsetAndTimestamp(42, 1042)}
        assert await consumer.offsets_for_times({place: 10**6}) == {place: None}
        assert topic in await consumer.topics()
        assert len(await consumer.partitions_for(topic)) == 1


@pytest.mark.parametrize("release", ["0.8", "0.9", "0.10", "0.11"])
@pytest.mark.parametrize("codec", ["none", "gzip"])
async def test_a_consumer_with_the_api_version_of_an_old_release_reads_all_records(
    broker_process: BrokerProcess, release: str, codec: str
) -> None:
    topic = await filled_topic(broker_process.bootstrap, count=500, compression_type=codec)
    async with Consumer(broker_process.bootstrap, auto_offset_reset="earliest", api_version=release) as consumer:
        consumer.assign([(topic, 0)])
        seen: list[ConsumerRecord] = []
        with trio.fail_after(PATIENCE_S):
            while len(seen) < 500:
                seen += await consumer.poll()
    assert [(record.offset, record.value) for record in seen] == [(n, b"%d" % n) for n in range(500)]
    assert seen[0].timestamp == (-1 if release in ("0.8", "0.9") else 1000)


@pytest.mark.parametrize("release", ["0.9", "0.10", "0.11"])
async def test_a_producer_and_a_group_work_with_the_api_version_of_an_old_release(
    broker_process: BrokerProcess, release: str
) -> None:
    topic = await filled_topic(broker_process.bootstrap, count=0)
    async with Producer(broker_process.bootstrap, api_version=release, enable_idempotence=False) as producer:
        for n in range(50):
            await producer.send(topic, b"%d" % n, key=b"k")
    async with Consumer(
        broker_process.bootstrap, group_id=f"g-{topic}", auto_offset_reset="earliest", api_version=release
    ) as consumer:
        consumer.subscribe([topic])
        with trio.fail_after(PATIENCE_S):
            records = await consumer.poll()
            assert records[0].key == b"k"
            await consumer.commit()
            assert (await consumer.committed())[topic, 0] == len(records)


# --- groups ---


async def test_a_group_goes_on_where_it_has_committed(broker_process: BrokerProcess) -> None:
    topic = await filled_topic(broker_process.bootstrap)
    config = {"group_id": f"g-{topic}", "auto_offset_reset": "earliest"}
    async with Consumer(broker_process.bootstrap, **config) as consumer:
        consumer.subscribe([topic])
        with trio.fail_after(PATIENCE_S):
            assert len(await consumer.poll(max_records=30)) == 30
    async with Consumer(broker_process.bootstrap, **config) as consumer:
        consumer.subscribe([topic])
        with trio.fail_after(PATIENCE_S):
            assert (await consumer.poll(max_records=1))[0].offset == 30, "closing has committed"


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
async def test_members_share_partitions_and_take_over_those_of_a_leaving_member(
    broker_process: BrokerProcess, strategy: str
) -> None:
    topic = await filled_topic(broker_process.bootstrap, partitions=4)
    config = {
        "group_id": f"g-{topic}",
        "auto_offset_reset": "earliest",
        "partition_assignment_strategy": strategy,
        "heartbeat_interval_ms": 50,
    }

    async def until_assigned(consumer: Consumer, count: int) -> None:
        while len(consumer.assignment()) != count:
            await consumer.poll(20)

    with trio.fail_after(PATIENCE_S):
        async with Consumer(broker_process.bootstrap, **config) as first:
            first.subscribe([topic])
            await until_assigned(first, 4)
            async with Consumer(broker_process.bootstrap, **config) as second:
                second.subscribe([topic])
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(until_assigned, first, 2)
                    nursery.start_soon(until_assigned, second, 2)
                assert not set(first.assignment()) & set(second.assignment())
            await until_assigned(first, 4)


async def test_a_pattern_subscription_calls_the_assignment_listener(broker_process: BrokerProcess) -> None:
    topic = await filled_topic(broker_process.bootstrap, partitions=2)
    calls: list[tuple[str, int]] = []

    async def assigned(places: list[tuple[str, int]]) -> None:
        calls.append(("assigned", len(places)))

    async with Consumer(broker_process.bootstrap, group_id=f"g-{topic}", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(re.compile(topic[:-3] + ".*"), on_assigned=assigned)
        with trio.fail_after(PATIENCE_S):
            assert await consumer.poll()
        assert calls == [("assigned", 2)]


async def test_subscribing_needs_a_group(broker_process: BrokerProcess) -> None:
    async with Consumer(broker_process.bootstrap) as consumer:
        with pytest.raises(ConfigError, match="group_id"):
            consumer.subscribe(["t"])
        with pytest.raises(ConfigError, match="group_id"):
            await consumer.commit({("t", 0): 1})


# --- faults ---


async def test_a_group_loses_no_records_when_the_broker_is_killed(broker_process: BrokerProcess) -> None:
    topic = await filled_topic(broker_process.bootstrap, count=200)
    seen: list[int] = []
    async with Consumer(
        broker_process.bootstrap,
        group_id=f"g-{topic}",
        auto_offset_reset="earliest",
        retry_backoff_ms=20,
        reconnect_backoff_ms=20,
        heartbeat_interval_ms=100,
    ) as consumer:
        consumer.subscribe([topic])
        with trio.fail_after(PATIENCE_S):
            while len(seen) < 100:
                seen += [record.offset for record in await consumer.poll(max_records=50)]
            await consumer.commit()
            broker_process.kill()
            await trio.to_thread.run_sync(broker_process.start_again)
            async with Producer(broker_process.bootstrap) as producer:
                await producer.send(topic, b"after")
            while not seen or seen[-1] != 200:
                seen += [record.offset for record in await consumer.poll(max_records=50)]
    assert sorted(set(seen)) == list(range(201)), "nothing is lost"


async def test_fetch_batch_tags_returns_the_tags_of_each_batch(broker_process: BrokerProcess) -> None:
    topic = await filled_topic(broker_process.bootstrap, count=50, compression_type="gzip")
    for is_asked in (True, False):
        async with Consumer(
            broker_process.bootstrap, auto_offset_reset="earliest", fetch_batch_tags=is_asked
        ) as consumer:
            consumer.assign([(topic, 0)])
            with trio.fail_after(PATIENCE_S):
                (fetched,) = await consumer.poll_batches()
        expected = [
            TaggedBatch(
                batch.base_offset, KafkaTags(None, batch.record_count, relative_offsets_honoured=True, keyed=False)
            )
            for batch in fetched.batches
        ]
        newest_ms = max(batch.max_timestamp for batch in fetched.batches)
        assert all((tags.timestamp_ms or 0) > newest_ms for _, tags in fetched.tags), "their receipt times"
        without_receipts = [TaggedBatch(offset, tags._replace(timestamp_ms=None)) for offset, tags in fetched.tags]
        assert without_receipts == (expected if is_asked else [])
        assert fetched.batches
