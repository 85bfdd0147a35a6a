"""The program under test: it writes orders with confluent-kafka and reads them and customers with aiokafka."""

from __future__ import annotations

import json

from aiokafka import AIOKafkaConsumer
from confluent_kafka import KafkaException, Message, Producer


class OrderLog:
    """A topic to which orders are written, each exactly once."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True})

    def place(self, order_id: str, customer: str, total: float) -> None:
        """Write an order and return once the broker has it. Raises KafkaException."""
        failures: list[object] = []

        def delivered(error: object, _: Message) -> None:
            if error is not None:
                failures.append(error)

        value = json.dumps({"customer": customer, "total": total})
        self._producer.produce(self._topic, value, key=order_id, on_delivery=delivered)
        if self._producer.flush(30) or failures:
            raise KafkaException(*failures)


async def read_all(bootstrap_servers: str, topic: str) -> dict[str, dict[str, object]]:
    """Return the newest value of each key of a topic."""
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest")
    found: dict[str, dict[str, object]] = {}
    async with consumer:
        ends = await consumer.end_offsets(consumer.assignment())
        while any([await consumer.position(partition) < end for partition, end in ends.items()]):
            record = await consumer.getone()
            found[record.key.decode()] = json.loads(record.value)
    return found
