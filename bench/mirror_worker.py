"""One copy of one topic from one broker to another, in a process of its own: the part of `bench.mirrors` that counts.

    python mirror_worker.py WAY SOURCE TARGET TOPIC PARTITIONS RECORDS CODEC BATCH_BYTES

Prints a line of JSON: seconds and CPU seconds (user and system) of this process, after its imports. `mirror` is what
`gregor mirror` runs, `task` what the tasks of `gregor pipeline mirror` run, here one after the other; `decoding` reads
records and writes them again with our own clients, `librdkafka` the same in C, under Python's loop.
"""

import json
import re
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

LINGER_MS = 5

Copy = Callable[[], None]


def mirror(source: str, target: str, topic: str, partitions: int, records: int, codec: str, batch_bytes: int) -> Copy:
    """Return a copy of unchanged batches with `gregor mirror`, from offset to offset."""
    import trio

    from gregor.client.mirroring import Mirror, MirrorOptions

    return lambda: trio.run(Mirror(source, target, MirrorOptions(re.compile(topic), once=True)).run)


def task(source: str, target: str, topic: str, partitions: int, records: int, codec: str, batch_bytes: int) -> Copy:
    """Return a copy of unchanged batches in transactions, with the tasks of `gregor pipeline mirror`."""
    import argparse

    from gregor.pipeline.jobs.mirror import add_arguments, plan
    from gregor.pipeline.sink.shallow_mirror import mirror_partition

    parser = argparse.ArgumentParser()
    add_arguments(parser)
    options = parser.parse_args(["--from", source, "--to", target, "--topics", topic])

    def copy() -> None:
        assert sum(mirror_partition(work).records for work in plan(options)) == records

    return copy


def decoding(source: str, target: str, topic: str, partitions: int, records: int, codec: str, batch_bytes: int) -> Copy:
    """Return a copy with our consumer and our producer."""
    import trio

    from gregor.client import Consumer, Delivery, Producer

    async def copy() -> None:
        producer = Producer(target, linger_ms=LINGER_MS, batch_size=batch_bytes, compression_type=codec)
        async with Consumer(source, auto_offset_reset="earliest") as consumer, producer:
            consumer.assign([(topic, partition) for partition in range(partitions)])
            taken = 0
            last: Delivery | None = None
            while taken < records:
                for record in await consumer.poll():
                    last = await producer.send(
                        topic,
                        record.value,
                        key=record.key,
                        headers=[(header.key.decode(), header.value) for header in record.headers],
                        partition=record.partition,
                        timestamp_ms=record.timestamp,
                    )
                    taken += 1
            assert last is not None
            await last

    return lambda: trio.run(copy)


def librdkafka(
    source: str, target: str, topic: str, partitions: int, records: int, codec: str, batch_bytes: int
) -> Copy:
    """Return a copy with confluent-kafka's consumer and producer."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

    failures: list[Any] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failures.append(error)

    def copy() -> None:
        consumer = Consumer({"bootstrap.servers": source, "group.id": "bench", "enable.auto.commit": False})
        settings = {"linger.ms": LINGER_MS, "batch.size": batch_bytes, "compression.type": codec}
        producer = Producer({"bootstrap.servers": target, "enable.idempotence": True, **settings})
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(partitions)])
        taken = 0
        while taken < records:
            for record in consumer.consume(500, 1.0):
                fields = {"key": record.key(), "partition": record.partition(), "timestamp": record.timestamp()[1]}
                while True:
                    try:
                        producer.produce(topic, record.value(), on_delivery=delivered, **fields)
                        break
                    except BufferError:
                        producer.poll(0.01)
                taken += 1
            producer.poll(0)
        producer.flush()
        consumer.close()
        assert not failures

    return copy


def main() -> None:
    """Run the copy that the arguments name and print the figures."""
    way, source, target, topic, partitions, records, codec, batch_bytes = sys.argv[1:]
    copy = globals()[way](source, target, topic, int(partitions), int(records), codec, int(batch_bytes))
    before = resource.getrusage(resource.RUSAGE_SELF)
    started = time.perf_counter()
    copy()
    elapsed = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    print(json.dumps({"seconds": elapsed, "cpu_seconds": cpu, "rss_mib": after.ru_maxrss / 1024}))


if __name__ == "__main__":
    main()
