"""Clusters for mirrors, their contents, and mirrors as processes of their own."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from random import Random
from typing import Any

import trio

from gregor.client import Admin, Consumer, Producer
from gregor.client.admin import NewTopic
from gregor.client.consumer.consumer_record import ConsumerRecord
from gregor.client.mirroring import Mirror, MirrorOptions, MirrorProgress
from gregor.protocol.records import v0, v1
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.record import Record
from gregor.protocol.topic_partition import AnyTopicPartition
from tests.waiting import PATIENCE_S

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
KILLS = 15


async def mirror_once(source: str, target: str, topics: str, **options: Any) -> MirrorProgress:
    """Copy all that is there now."""
    mirror = Mirror(source, target, MirrorOptions(re.compile(topics), once=True, **options))
    with trio.fail_after(PATIENCE_S):
        await mirror.run()
    return mirror.progress


def start_mirror(source: str, target: str, topics: str, *options: str) -> subprocess.Popen[bytes]:
    """Start `gregor mirror` as a user does, following the source."""
    command = [sys.executable, "-m", "gregor.command_line", "mirror", "--from", source, "--to", target]
    return subprocess.Popen([*command, "--topics", topics, *options], stdout=subprocess.DEVNULL)


async def create(bootstrap: str, topic: str, partitions: int = 1, **configs: str) -> None:
    async with Admin(bootstrap) as admin:
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        await admin.create_topics([NewTopic(topic, partitions, 1, settings)])


async def fill(bootstrap: str, topic: str, partitions: int, count: int, *, seed: int = 1) -> None:
    """Produce records with and without keys and headers, in every codec, some in aborted transactions."""
    random = Random(seed)
    for number, codec in enumerate(CODECS):
        transactional_id = f"fill-{topic}-{seed}" if number % 2 else None
        async with Producer(
            bootstrap, compression_type=codec, batch_size=2_000, transactional_id=transactional_id
        ) as producer:
            if transactional_id is None:
                await _send_some(producer, topic, partitions, count // len(CODECS), random)
                continue
            async with producer.transaction():
                await _send_some(producer, topic, partitions, count // len(CODECS), random)
            try:
                async with producer.transaction():
                    await _send_some(producer, topic, partitions, 20, random)
                    await producer.flush()
                    raise ZeroDivisionError
            except ZeroDivisionError:
                pass
    await _wait_for_markers(bootstrap, [(topic, partition) for partition in range(partitions)])


async def _wait_for_markers(bootstrap: str, places: list[AnyTopicPartition]) -> None:
    """Wait until all committed records can be read: Kafka answers EndTxn before it writes the markers."""
    async with Consumer(bootstrap) as consumer, Consumer(bootstrap, isolation_level="read_committed") as of_committed:
        with trio.fail_after(PATIENCE_S):
            while await of_committed.end_offsets(places) != await consumer.end_offsets(places):
                await trio.lowlevel.checkpoint()


async def _send_some(producer: Producer, topic: str, partitions: int, count: int, random: Random) -> None:
    for n in range(count):
        key = None if random.random() < 0.5 else b"key-%d" % random.randrange(100)
        value = None if random.random() < 0.02 else b"%d-" % n + random.randbytes(random.randrange(100))
        headers = [("h", b"%d" % n)] if random.random() < 0.2 else []
        await producer.send(topic, value, key=key, headers=headers, partition=random.randrange(partitions))


async def read_all(
    bootstrap: str, topic: str, partitions: int, *, isolation_level: str = "read_uncommitted"
) -> dict[int, list[ConsumerRecord]]:
    """Return all records of each partition, up to the ends as they are now."""
    records: dict[int, list[ConsumerRecord]] = {partition: [] for partition in range(partitions)}
    places: list[AnyTopicPartition] = [(topic, partition) for partition in range(partitions)]
    async with Consumer(bootstrap, auto_offset_reset="earliest", isolation_level=isolation_level) as consumer:
        ends = await consumer.end_offsets(places)
        consumer.assign(places)
        with trio.fail_after(PATIENCE_S):
            while any((consumer.position(*place) or 0) < end for place, end in ends.items()):
                for record in await consumer.poll(200, max_records=10_000):
                    records[record.partition].append(record)
    return records


def contents(records: Iterable[ConsumerRecord]) -> list[tuple[Any, ...]]:
    """Return the parts of records that must be equal in each copy."""
    return [(record.timestamp, record.key, record.value, record.headers) for record in records]


async def difference(source: str, target: str, topic: str, partitions: int) -> str | None:
    """Return how the copy, read uncommitted, differs from the source; None if it is exact."""
    wanted = await read_all(source, topic, partitions, isolation_level="read_committed")
    found = await read_all(target, topic, partitions)
    for partition in range(partitions):
        want, have = contents(wanted[partition]), contents(found[partition])
        if want != have:
            place = next((n for n, pair in enumerate(zip(want, have, strict=False)) if pair[0] != pair[1]), None)
            return f"{topic}-{partition}: {len(have)} records instead of {len(want)}, first other one at {place}"
        if [record.offset for record in found[partition]] != list(range(len(have))):
            return f"{topic}-{partition}: offsets of the copy are not 0, 1, 2..."
    return None


async def killed_again_and_again(source: str, target: str, topic: str, *options: str) -> None:
    """Fill a topic while it is mirrored, and kill -9 the mirror at random moments; then let it finish."""
    await create(source, topic, 3)
    random = Random(topic)

    async def keep_filling() -> None:
        for seed in range(8):
            await fill(source, topic, 3, 4_000, seed=seed)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_filling)
        for _ in range(KILLS):
            mirror = start_mirror(source, target, topic, "--max-rate", "0.3", *options)
            await trio.sleep(0.5 + random.random())
            mirror.kill()
            mirror.wait()
    await mirror_once(source, target, topic, keeps_offsets="--keep-offsets" in options)


async def send_old_formats(bootstrap: str, topic: str) -> None:
    """Send sets of format v0 and v1, compressed and not, and single records of v2 between them."""
    records = [Record(n, 1_700_000_000_000 + n, b"k%d" % n, b"v%d" % n) for n in range(5)]
    async with Producer(bootstrap) as producer:
        for module in (v0, v1, v0):
            for codec in (Codec.NONE, Codec.GZIP, Codec.LZ4):
                await (await producer.send_batch(topic, 0, module.build_message_set(records, codec=codec)))
            await (await producer.send(topic, b"new", partition=0))
