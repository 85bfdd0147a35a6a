"""Produces one record and reads it back by librdkafka: SETTINGS(JSON) TOPIC VALUE."""

import json
import sys

from confluent_kafka import Consumer, Producer, TopicPartition

settings, topic, value = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]
failures = []
producer = Producer({**settings, "message.timeout.ms": 20000})
producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error))
producer.flush(25)
assert failures == [None], failures
consumer = Consumer({**settings, "group.id": "g"})
consumer.assign([TopicPartition(topic, 0, 0)])
for _ in range(20):
    record = consumer.poll(1)
    if record is not None and record.error() is None:
        print(record.value().decode())
        break
consumer.close()
