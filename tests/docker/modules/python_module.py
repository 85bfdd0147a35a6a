"""Run by test_testcontainers.py in an environment of its own: a round trip through each mode of the Python module."""

import sys

from confluent_kafka import Consumer, Producer
from testcontainers.community.kafka import KafkaContainer  # type: ignore[import-not-found]

for mode in ("zookeeper", "kraft"):
    container = KafkaContainer(sys.argv[1])
    with container.with_kraft() if mode == "kraft" else container:
        servers = container.get_bootstrap_server()
        producer = Producer({"bootstrap.servers": servers})
        producer.produce("t", b"v")
        assert producer.flush(30) == 0
        consumer = Consumer({"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["t"])
        message = consumer.poll(30)
        assert message is not None
        assert message.value() == b"v"
        consumer.close()
    print(f"{mode}: a round trip")
