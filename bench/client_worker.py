"""One client, one direction, one run: the part of `bench.clients` that runs in each client's own environment.

    python client_worker.py CLIENT produce|consume BOOTSTRAP TOPIC COUNT BYTES

Prints a line of JSON: seconds, CPU seconds (user and system) and records; the CPU seconds of importing the client
are a value of their own. Settings are the same for all: acks=all, linger 5 ms, batches of 16 kB, no compression; other
settings are each client's defaults.
"""

import asyncio
import importlib
import json
import resource
import sys
import time
from typing import Any

LINGER_MS = 5
BATCH_BYTES = 16_384
RECORDS_A_POLL = 500
PATIENCE_S = 10.0
MODULES = {
    "gregor": ("trio", "gregor.client.producer.producer", "gregor.client.consumer.consumer"),
    "aiokafka": ("aiokafka",),
    "kafka-python": ("kafka",),
    "confluent": ("confluent_kafka",),
}


def produce_gregor(bootstrap: str, topic: str, values: list[bytes]) -> None:
    """Produce with our client."""
    import trio

    from gregor.client import Producer

    async def run() -> None:
        async with Producer(bootstrap, linger_ms=LINGER_MS, batch_size=BATCH_BYTES) as producer:
            deliveries = [await producer.send(topic, value) for value in values]
        assert all(delivery.error is None for delivery in deliveries)

    trio.run(run)


def consume_gregor(bootstrap: str, topic: str, count: int) -> int:
    """Consume with our client."""
    import trio

    from gregor.client import Consumer

    async def run() -> int:
        size = seen = 0
        async with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([(topic, 0)])
            while seen < count:
                for record in await consumer.poll():
                    size += len(record.value or b"")
                    seen += 1
        return size

    return trio.run(run)


def produce_aiokafka(bootstrap: str, topic: str, values: list[bytes]) -> None:
    """Produce with aiokafka: asyncio, batches built by a C extension."""
    from aiokafka import AIOKafkaProducer

    async def run() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, acks="all", linger_ms=LINGER_MS, max_batch_size=BATCH_BYTES
        )
        await producer.start()
        futures = [await producer.send(topic, value) for value in values]
        await producer.flush()
        await asyncio.gather(*futures)
        await producer.stop()

    asyncio.run(run())


def consume_aiokafka(bootstrap: str, topic: str, count: int) -> int:
    """Consume with aiokafka: asyncio, batches read by a C extension."""
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def run() -> int:
        size = seen = 0
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        await consumer.start()
        consumer.assign([TopicPartition(topic, 0)])
        while seen < count:
            for records in (await consumer.getmany(timeout_ms=1000, max_records=RECORDS_A_POLL)).values():
                for record in records:
                    size += len(record.value or b"")
                    seen += 1
        await consumer.stop()
        return size

    return asyncio.run(run())


def produce_kafka_python(bootstrap: str, topic: str, values: list[bytes]) -> None:
    """Produce with kafka-python: threads, pure Python."""
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", linger_ms=LINGER_MS, batch_size=BATCH_BYTES)
    futures = [producer.send(topic, value) for value in values]
    producer.flush()
    assert all(future.succeeded() for future in futures)
    producer.close()


def consume_kafka_python(bootstrap: str, topic: str, count: int) -> int:
    """Consume with kafka-python: threads, pure Python."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", group_id=None)
    consumer.assign([TopicPartition(topic, 0)])
    size = seen = 0
    while seen < count:
        for records in consumer.poll(timeout_ms=1000, max_records=RECORDS_A_POLL).values():
            for record in records:
                size += len(record.value or b"")
                seen += 1
    consumer.close()
    return size


def produce_confluent(bootstrap: str, topic: str, values: list[bytes]) -> None:
    """Produce with confluent-kafka: librdkafka, all of it C except for the call."""
    from confluent_kafka import Producer

    failures: list[Any] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failures.append(error)

    # librdkafka's own default is 1 MB; batches as large as everyone else's are compared.
    settings = {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": LINGER_MS, "batch.size": BATCH_BYTES}
    producer = Producer(settings)
    for value in values:
        while True:
            try:
                producer.produce(topic, value, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    producer.flush()
    assert not failures


def consume_confluent(bootstrap: str, topic: str, count: int) -> int:
    """Consume with confluent-kafka: librdkafka."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    size = seen = 0
    while seen < count:
        for record in consumer.consume(RECORDS_A_POLL, 1.0):
            size += len(record.value() or b"")
            seen += 1
    consumer.close()
    return size


def cpu_seconds() -> float:
    """Return the user and system time of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Run the client that the arguments name and print the figures."""
    client, direction, bootstrap, topic, count_text, size_text = sys.argv[1:]
    count, size = int(count_text), int(size_text)
    work = globals()[f"{direction}_{client.replace('-', '_')}"]
    values = [bytes([65 + n % 26]) * size for n in range(count)] if direction == "produce" else []
    importing = cpu_seconds()
    for module in MODULES[client]:
        importlib.import_module(module)
    before = cpu_seconds()
    started = time.perf_counter()
    if direction == "produce":
        work(bootstrap, topic, values)
    else:
        assert work(bootstrap, topic, count) >= count * size
    elapsed = time.perf_counter() - started
    figures = {"seconds": elapsed, "cpu_seconds": cpu_seconds() - before, "import_seconds": before - importing}
    print(json.dumps({**figures, "records": count}))


if __name__ == "__main__":
    main()
