"""Produces one record and reads it back by kafka-python: SETTINGS(JSON) TOPIC VALUE."""

import json
import sys

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

try:
    from kafka.sasl.oauth import AbstractTokenProvider
except ImportError:
    from kafka.net.sasl.oauth import AbstractTokenProvider

settings, topic, value = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]


class Token(AbstractTokenProvider):  # type: ignore[misc]
    """A provider of one token."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def token(self) -> str:
        return self._token


if "token" in settings:
    settings["sasl_oauth_token_provider"] = Token(settings.pop("token"))
producer = KafkaProducer(**settings)
producer.send(topic, value.encode()).get(20)
producer.close()
consumer = KafkaConsumer(**settings, consumer_timeout_ms=15000)
consumer.assign([TopicPartition(topic, 0)])
consumer.seek_to_beginning()
print(next(consumer).value.decode())
consumer.close()
