"""KIP-126: the share of batches that are split, and the number of records that arrive.

    python -m bench.kip126

The first table has the share of splits when records of very different compressibility are mixed in one topic, with
equal batch.size and max.message.bytes. The second table has the KIP's example: records that compress to 1/10 train the
estimate, and then records that compress to 1/5 follow, in another topic or in the same topic (which the KIP's estimate
cannot predict either). "One estimate" is the estimate of producers before the KIP: one ratio for all topics, the mean
of the last batches. A batch is closed only when it is full.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random
from uuid import uuid4

import trio

from bench.one_broker import one_broker
from gregor.client import Admin, Consumer, Producer
from gregor.client.admin import NewTopic
from gregor.client.metrics import MetricValues
from gregor.client.producer.compression_estimator import CompressionRatioEstimator
from gregor.protocol.records.compression import Codec

LIMIT_BYTES = 100_000
RECORD_BYTES = 1_000
MIXES: dict[str, tuple[float, ...]] = {
    "all 1/2": (0.5,),
    "1/10 to 1, evenly": tuple(step / 10 for step in range(1, 11)),
    "1/10 or 1, evenly": (0.1, 1.0),
    "9 of 10 are 1/10, one is 1": (0.1,) * 9 + (1.0,),
}
RECORDS_PER_MIX = 40_000
RECORDS_BETWEEN_CHANGES = 500
RECORDS_PER_CHAPTER = 50_000
"""The records of each compressibility: enough for the KIP's small steps from 1 to 1/10."""
NEVER_MS = 60_000


class OneEstimateForAll(CompressionRatioEstimator):
    """The estimator before KIP-126: one damped mean per codec for all topics, and no reset."""

    DAMPING = 0.9

    def __init__(self) -> None:
        super().__init__()
        self._mean = 1.0

    def ratio(self, topic: str, codec: Codec) -> float:
        """Return the current mean."""
        return self._mean

    def observe(self, topic: str, codec: Codec, observed_ratio: float) -> float:
        """Move the mean."""
        self._mean = self._mean * self.DAMPING + observed_ratio * (1 - self.DAMPING)
        return self._mean

    def reset(self, topic: str, codec: Codec) -> None:
        """Do nothing: the former estimator ignored splits."""


def record(random: Random, ratio: float, size: int = RECORD_BYTES) -> bytes:
    """Return a value that compresses to about `ratio` of its size."""
    noise = int(size * ratio)
    return random.randbytes(noise) + bytes(size - noise)


def mixed(random: Random, mix: tuple[float, ...], count: int) -> Iterator[bytes]:
    """Yield records in runs of one compressibility each, which is harder than a fine mixture."""
    for start in range(0, count, RECORDS_BETWEEN_CHANGES):
        ratio = random.choice(mix)
        for _ in range(min(RECORDS_BETWEEN_CHANGES, count - start)):
            yield record(random, ratio)


def alike(random: Random, ratio: float, count: int) -> Iterator[bytes]:
    """Yield records of one compressibility."""
    for _ in range(count):
        yield record(random, ratio)


async def send_all(
    bootstrap: str, chapters: Iterable[tuple[str, Iterable[bytes]]], codec: str, *, is_one_for_all: bool
) -> MetricValues:
    """Send records, topic by topic; return the producer's metrics."""
    async with Producer(
        bootstrap, compression_type=codec, batch_size=LIMIT_BYTES, linger_ms=NEVER_MS, max_request_size=10 * LIMIT_BYTES
    ) as producer:
        if is_one_for_all:
            producer._accumulator.estimator = OneEstimateForAll()
        for topic, values in chapters:
            for value in values:
                await producer.send(topic, value)
            await producer.flush()
        return producer.metrics()


async def new_topic(bootstrap: str) -> str:
    """Create a topic that accepts batches of at most LIMIT_BYTES; return its name."""
    name = f"kip126-{uuid4().hex[:8]}"
    async with Admin(bootstrap) as admin:
        await admin.create_topics([NewTopic(name, 1, 1, {"max.message.bytes": str(LIMIT_BYTES)})])
    return name


async def count_records(bootstrap: str, topic: str) -> int:
    """Return the number of records in the topic."""
    async with Consumer(bootstrap) as consumer:
        return sum((await consumer.end_offsets([(topic, 0)])).values())


def split_share(metrics: MetricValues) -> float:
    """Return the share of splits in the batches sent, in percent."""
    splits = metrics.value("batch-split-total")
    return 100 * splits / max(metrics.value("gregor.batch-send-total"), 1)


async def mixes(bootstrap: str) -> None:
    """Print the first table."""
    print("| codec | mixture in one topic | batches | splits | split share | one estimate: split share |")
    print("| --- | --- | --- | --- | --- | --- |")
    for codec in ("gzip", "lz4", "zstd"):
        for name, mix in MIXES.items():
            shares: list[float] = []
            first = MetricValues()
            for is_one_for_all in (False, True):
                topic = await new_topic(bootstrap)
                values = mixed(Random(1), mix, RECORDS_PER_MIX)
                metrics = await send_all(bootstrap, [(topic, values)], codec, is_one_for_all=is_one_for_all)
                assert await count_records(bootstrap, topic) == RECORDS_PER_MIX, "records were lost"
                shares.append(split_share(metrics))
                first = first or metrics
            print(
                f"| {codec} | {name} | {first.value('gregor.batch-send-total'):.0f} "
                f"| {first.value('batch-split-total'):.0f} "
                f"| {shares[0]:.1f} % | {shares[1]:.1f} % |",
                flush=True,
            )


async def story(bootstrap: str) -> None:
    """Print the second table."""
    print("\n| estimate | 1/5 comes in | batches | splits | split share | sent | arrived |\n|" + " --- |" * 7)
    for name, is_one_for_all, is_same_topic in (
        ("one for all topics", True, False),
        ("KIP-126", False, False),
        ("KIP-126", False, True),
    ):
        random = Random(2)
        first = await new_topic(bootstrap)
        second = first if is_same_topic else await new_topic(bootstrap)
        chapters = [
            (first, alike(random, 0.1, RECORDS_PER_CHAPTER)),
            (second, alike(random, 0.2, RECORDS_PER_CHAPTER)),
        ]
        metrics = await send_all(bootstrap, chapters, "gzip", is_one_for_all=is_one_for_all)
        arrived = [await count_records(bootstrap, topic) for topic in dict.fromkeys((first, second))]
        print(
            f"| {name} | {'the same topic' if is_same_topic else 'another topic'} "
            f"| {metrics.value('gregor.batch-send-total'):.0f} "
            f"| {metrics.value('batch-split-total'):.0f} | {split_share(metrics):.1f} % "
            f"| {2 * RECORDS_PER_CHAPTER} | {sum(arrived)} |",
            flush=True,
        )


def main() -> int:
    """Print both tables."""
    with one_broker() as broker:
        trio.run(mixes, broker.bootstrap)
        trio.run(story, broker.bootstrap)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
