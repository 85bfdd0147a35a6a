"""Topics for measurements, filled fast: a few generated batches that are repeated."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from gregor.client import Admin, Delivery, Producer
from gregor.client.admin import NewTopic
from gregor.pipeline.synthetic.synthetic import Recipe
from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.records.compression import Codec

BATCH_BYTES = 16_384
"""Kafka's default `batch.size`."""
MADE_BYTES = 8 << 20
"""The size of the generated values: too many for a dictionary of Parquet to hold all of them."""
DELIVERIES_AHEAD = 64
FIRST_TIMESTAMP_MS = 1_900_000_000_000


@dataclass(frozen=True)
class RepeatedTopic:
    """A filled topic: the numbers of its stored `batches` and `records`, and its size in bytes."""

    name: str
    batches: int
    records: int
    size_bytes: int


def made_batches(
    value_bytes: int, codec: Codec, *, repetitive: float = 0.5, batch_bytes: int = BATCH_BYTES
) -> list[tuple[bytes, int]]:
    """Return batches of about `batch_bytes` in their stored form, each with its record count."""
    held = max(1, batch_bytes // (value_bytes + 8))
    while True:
        recipe = Recipe(
            seed=1,
            records=held * max(1, MADE_BYTES // batch_bytes),
            partitions=1,
            value_bytes=value_bytes,
            codec=codec,
            repetitive=repetitive,
            batch_records=held,
            first_timestamp_ms=FIRST_TIMESTAMP_MS,
        )
        batches = list(recipe.batches(0))
        if codec is Codec.NONE or len(batches[0]) > 0.9 * batch_bytes:
            return [(batch, held) for batch in batches]
        held = int(held * batch_bytes / len(batches[0])) + 1


async def fill(
    bootstrap: str,
    name: str,
    partitions: int,
    batches: list[tuple[bytes, int]],
    *,
    size_bytes: int = 0,
    records: int = 0,
) -> RepeatedTopic:
    """Create the topic and repeat `batches` until it has as many bytes and records."""
    async with Admin(bootstrap) as admin, Producer(bootstrap, max_request_size=4 << 20) as producer:
        await admin.create_topics([NewTopic(name, partitions)])
        under_way: deque[Delivery] = deque()
        count = made_records = made_bytes = 0
        while made_bytes < size_bytes or made_records < records:
            batch, held = batches[count % len(batches)]
            under_way.append(await producer.send_batch(name, count % partitions, batch))
            count, made_records, made_bytes = count + 1, made_records + held, made_bytes + len(batch)
            if len(under_way) > DELIVERIES_AHEAD:
                await under_way.popleft()
    return RepeatedTopic(name, count, made_records, made_bytes)


async def empty_topic(bootstrap: str, name: str, partitions: int) -> None:
    """Create the topic, or empty it if it exists."""
    async with Admin(bootstrap) as admin:
        if name in await admin.list_topics():
            await admin.delete_topics([name])
        # The progress of mirrors and sinks would refer to a deleted topic.
        for group in await admin.list_groups():
            try:
                await admin.delete_groups([group.group_id])
            except BrokerError as error:
                # Kafka itself removes a group whose last offset was one of the deleted topic, some time later.
                if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
                    raise
        await admin.create_topics([NewTopic(name, partitions)])
