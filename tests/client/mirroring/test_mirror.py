"""The mirror between two Gregor brokers: copied records, their batches, and the position after a restart."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random
from uuid import uuid4

import pytest
import trio

from gregor.client import Admin, Consumer, Producer
from gregor.client.admin import ResourceType
from gregor.client.mirroring import Mirror, MirrorError, MirrorOptions
from gregor.protocol.records import v2
from gregor.protocol.records.batches import BatchView
from gregor.protocol.records.enriched import KafkaTags
from tests.broker_process import running_broker
from tests.client.mirroring.scenes import contents, create, difference, fill, mirror_once, read_all, send_old_formats
from tests.counted_decompressions import count_decompressions
from tests.waiting import PATIENCE_S

OVERRIDES = (
    "offsets.topic.num.partitions=1",
    "transaction.state.log.num.partitions=1",
    "log.cleaner.backoff.ms=100",
    "log.initial.task.delay.ms=100",
)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_broker(tmp_path_factory.mktemp("source"), *OVERRIDES) as broker:
        yield broker.bootstrap


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_broker(tmp_path_factory.mktemp("target"), *OVERRIDES) as broker:
        yield broker.bootstrap


@pytest.fixture
def topic() -> str:
    return f"m-{uuid4().hex[:12]}"


async def stored_batches(bootstrap: str, topic: str) -> list[BatchView]:
    """Return the batches of partition 0 as they are stored."""
    batches: list[BatchView] = []
    async with Consumer(bootstrap, auto_offset_reset="earliest", fetch_as_stored=True) as consumer:
        consumer.assign([(topic, 0)])
        (end,) = (await consumer.end_offsets([(topic, 0)])).values()
        with trio.fail_after(PATIENCE_S):
            while (consumer.position(topic, 0) or 0) < end:
                for fetched in await consumer.poll_batches(200):
                    batches += fetched.batches
    return batches


async def test_a_cluster_is_not_mirrored_to_itself(source: str, topic: str) -> None:
    await create(source, topic)
    await fill(source, topic, 1, 10)
    for options in ({}, {"keeps_offsets": True}):
        with pytest.raises(MirrorError, match="the source and the target are the same cluster, "):
            await mirror_once(source, source, topic, **options)


async def test_mirroring_a_topic_missing_at_the_source_is_refused(source: str, target: str, topic: str) -> None:
    with pytest.raises(MirrorError, match=f"the source has no topic whose whole name matches {topic}"):
        await mirror_once(source, target, topic)


async def test_all_records_are_mirrored_in_order_and_record_bytes_are_unchanged(
    source: str, target: str, topic: str
) -> None:
    await create(source, topic, 3, retention_ms="123456789", max_message_bytes="2000000")
    await fill(source, topic, 3, 2_000)
    progress = await mirror_once(source, target, topic)
    assert await difference(source, target, topic, 3) is None
    assert progress.lag == 0
    async with Admin(target) as admin:
        configs = {entry.name: entry.value for entry in await admin.describe_configs(ResourceType.TOPIC, topic)}
        assert (configs["retention.ms"], configs["max.message.bytes"]) == ("123456789", "2000000")
    there = [bytes(batch.view)[v2.RECORDS_AT :] for batch in await stored_batches(source, topic)]
    here = [bytes(batch.view)[v2.RECORDS_AT :] for batch in await stored_batches(target, topic)]
    assert set(here) <= set(there), "the bytes of the source, except for headers"


async def test_a_mirror_continues_after_the_last_mirrored_record(source: str, target: str, topic: str) -> None:
    await create(source, topic, 2)
    for seed in range(3):
        await fill(source, topic, 2, 300, seed=seed)
        assert (await mirror_once(source, target, topic)).records > 0
        assert (await mirror_once(source, target, topic)).records == 0
        assert await difference(source, target, topic, 2) is None


async def test_a_running_mirror_picks_up_new_records_topics_and_partitions(
    source: str, target: str, topic: str
) -> None:
    await create(source, f"{topic}-a", 1)
    mirror = Mirror(source, target, MirrorOptions(re.compile(f"{topic}-."), refresh_seconds=0.1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mirror.run)
        await fill(source, f"{topic}-a", 1, 100)
        await create(source, f"{topic}-b", 1)
        await fill(source, f"{topic}-b", 1, 100)
        async with Admin(source) as admin:
            await admin.create_partitions(f"{topic}-b", 2)
        async with Producer(source) as producer:
            await (await producer.send(f"{topic}-b", b"late", partition=1))
        with trio.fail_after(PATIENCE_S):
            await wait_for_records(target, f"{topic}-b", 2, 101)
            await wait_for_records(target, f"{topic}-a", 1, 100)
        nursery.cancel_scope.cancel()
    assert await difference(source, target, f"{topic}-a", 1) is None
    assert await difference(source, target, f"{topic}-b", 2) is None


async def wait_for_records(bootstrap: str, topic: str, partitions: int, count: int) -> None:
    """Read until the given number of records has arrived, also while topic and partitions are being created."""
    async with Consumer(bootstrap, auto_offset_reset="earliest", allow_auto_create_topics=False) as consumer:
        consumer.assign([(topic, partition) for partition in range(partitions)])
        seen = 0
        while seen < count:
            seen += len(await consumer.poll())


# --- old formats, holes, foreign timestamps ---


@pytest.mark.parametrize("keeps_offsets", [False, True])
async def test_old_message_formats_are_mirrored_unchanged_without_decompression(
    source: str, target: str, topic: str, keeps_offsets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(source, topic)
    await send_old_formats(source, topic)
    counted = count_decompressions(monkeypatch)
    await mirror_once(source, target, topic, keeps_offsets=keeps_offsets)
    assert counted.taken() == 0, "the source's tags say how many messages there are"
    assert await difference(source, target, topic, 1) is None
    there, here = await stored_batches(source, topic), await stored_batches(target, topic)
    assert [(batch.magic, batch.codec, batch.last_offset) for batch in here] == [
        (batch.magic, batch.codec, batch.last_offset) for batch in there
    ]


async def compacted_topic(bootstrap: str, topic: str) -> None:
    """Create a topic whose batches have gaps from compaction."""
    await create(bootstrap, topic, cleanup_policy="compact", segment_bytes="20000", min_cleanable_dirty_ratio="0.01")
    async with Producer(bootstrap, linger_ms=5, batch_size=4_000, compression_type="gzip") as producer:
        for n in range(4_000):
            key = b"k%d" % (n if n % 10 == 0 else n % 7)
            await producer.send(topic, Random(n).randbytes(50), key=key, partition=0)
    with trio.fail_after(PATIENCE_S):
        remaining = 4_000
        while remaining > 2_000:
            remaining = len((await read_all(bootstrap, topic, 1))[0])


@pytest.mark.parametrize("keeps_offsets", [False, True])
async def test_compacted_topics_are_mirrored(source: str, target: str, topic: str, keeps_offsets: bool) -> None:
    await compacted_topic(source, topic)
    await mirror_once(source, target, topic, keeps_offsets=keeps_offsets)
    wanted, found = (await read_all(source, topic, 1))[0], (await read_all(target, topic, 1))[0]
    latest = {record.key: (record.timestamp, record.value) for record in wanted}
    assert {record.key: (record.timestamp, record.value) for record in found} == latest
    if keeps_offsets:
        at = {record.offset: record for record in wanted}
        assert all(contents([record]) == contents([at[record.offset]]) for record in found if record.offset in at)


async def test_log_append_times_of_the_source_are_kept(source: str, target: str, topic: str) -> None:
    await create(source, topic, message_timestamp_type="LogAppendTime")
    async with Producer(source, compression_type="gzip") as producer:
        for n in range(20):
            await producer.send(topic, b"%d" % n, timestamp_ms=5)
    await mirror_once(source, target, topic)
    assert await difference(source, target, topic, 1) is None
    assert {record.timestamp for record in (await read_all(target, topic, 1))[0]} != {5}


async def test_batches_above_max_message_bytes_of_the_target_are_rebuilt(source: str, target: str, topic: str) -> None:
    await create(source, topic)
    await create(target, topic, max_message_bytes="3000")
    async with Producer(source, linger_ms=50) as producer:
        for n in range(300):
            await producer.send(topic, b"%d" % n * 10)
    await mirror_once(source, target, topic)
    assert await difference(source, target, topic, 1) is None
    assert max(batch.size_bytes for batch in await stored_batches(target, topic)) <= 3_000


# --- keeping offsets ---


async def test_with_keeps_offsets_records_have_the_offsets_of_the_source(source: str, target: str, topic: str) -> None:
    await create(source, topic, 2)
    for seed in range(2):
        await fill(source, topic, 2, 500, seed=seed)
        async with Admin(source) as admin:
            await admin.delete_records({(topic, 1): 10 + 60 * seed})
        await mirror_once(source, target, topic, keeps_offsets=True)
        wanted = await read_all(source, topic, 2, isolation_level="read_committed")
        found = await read_all(target, topic, 2)
        assert [record.offset for record in found[0]] == [record.offset for record in wanted[0]]
        assert contents(found[0]) == contents(wanted[0])
    assert [record.offset for record in found[1]][-100:] == [record.offset for record in wanted[1]][-100:]
    assert found[1][0].offset == 10


async def stored_tags(bootstrap: str, topic: str) -> dict[int, KafkaTags]:
    """Return the tags of the batches of partition 0 by first offset, as clients see them."""
    found: dict[int, KafkaTags] = {}
    async with Consumer(
        bootstrap, auto_offset_reset="earliest", fetch_as_stored=True, fetch_batch_tags=True
    ) as consumer:
        consumer.assign([(topic, 0)])
        (end,) = (await consumer.end_offsets([(topic, 0)])).values()
        with trio.fail_after(PATIENCE_S):
            while (consumer.position(topic, 0) or 0) < end:
                for fetched in await consumer.poll_batches(200):
                    found |= dict(fetched.tags)
    return found


async def test_receipt_times_are_those_of_the_source(source: str, target: str, topic: str) -> None:
    await create(source, topic)
    await send_old_formats(source, topic)
    await mirror_once(source, target, topic, keeps_offsets=True)
    await fill(source, topic, 1, 100)
    await mirror_once(source, target, topic, keeps_offsets=True)
    there, here = await stored_tags(source, topic), await stored_tags(target, topic)
    receipts = {offset: tags.timestamp_ms for offset, tags in here.items()}
    assert receipts == {offset: there[offset].timestamp_ms for offset in here}
    assert len(set(receipts.values())) > 1
    counts = {offset: tags.message_count for offset, tags in here.items()}
    assert counts == {offset: there[offset].message_count for offset in here}


# --- what cannot go on ---


@pytest.mark.parametrize("keeps_offsets", [False, True])
async def test_records_of_other_producers_in_the_target_topic_fail_the_mirror(
    source: str, target: str, topic: str, keeps_offsets: bool
) -> None:
    await create(source, topic)
    await fill(source, topic, 1, 50)
    await mirror_once(source, target, topic, keeps_offsets=keeps_offsets)
    async with Producer(target) as producer:
        for _ in range(40):
            await producer.send(topic, b"not ours")
    async with Producer(source) as producer:
        await (await producer.send(topic, b"more"))
    with pytest.raises(MirrorError, match=r"another client|the topic was recreated"):
        await mirror_once(source, target, topic, keeps_offsets=keeps_offsets)


async def test_a_deleted_target_topic_is_recreated(source: str, target: str, topic: str) -> None:
    await create(source, topic)
    await fill(source, topic, 1, 50)
    await mirror_once(source, target, topic)
    async with Admin(target) as admin:
        await admin.delete_topics([topic])
    await mirror_once(source, target, topic)
    assert await difference(source, target, topic, 1) is None


async def test_a_target_topic_with_records_but_no_journal_is_refused_unless_appending(
    source: str, target: str, topic: str
) -> None:
    await create(source, topic)
    await fill(source, topic, 1, 50)
    await create(target, topic)
    async with Producer(target) as producer:
        await (await producer.send(topic, b"there before"))
    with pytest.raises(MirrorError, match="has no offset for it"):
        await mirror_once(source, target, topic)
    await mirror_once(source, target, topic, appends=True)
    await mirror_once(source, target, topic)
    first, *copied = (await read_all(target, topic, 1))[0]
    assert first.value == b"there before"
    assert contents(copied) == contents((await read_all(source, topic, 1, isolation_level="read_committed"))[0])


async def test_a_group_with_commits_of_another_client_is_refused(source: str, target: str, topic: str) -> None:
    await create(source, topic)
    await fill(source, topic, 1, 50)
    await create(target, topic)
    async with Admin(target) as admin:
        await admin.alter_group_offsets(f"g-{topic}", {(topic, 0): 3})
    with pytest.raises(MirrorError, match="does another client commit offsets"):
        await mirror_once(source, target, topic, group_id=f"g-{topic}")


async def test_records_deleted_at_the_source_are_skipped(source: str, target: str, topic: str) -> None:
    await create(source, topic)
    await fill(source, topic, 1, 100)
    await mirror_once(source, target, topic)
    before = len((await read_all(target, topic, 1))[0])
    async with Producer(source) as producer:
        for n in range(10):
            await (await producer.send(topic, b"%d" % n))
    async with Admin(source) as admin:
        (end,) = (await admin.list_offsets({(topic, 0): -1})).values()
        assert end is not None
        await admin.delete_records({(topic, 0): end.offset - 4})
    await mirror_once(source, target, topic)
    values = [record.value for record in (await read_all(target, topic, 1))[0]]
    assert values[before:] == [b"6", b"7", b"8", b"9"]
