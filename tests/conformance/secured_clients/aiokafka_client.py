"""Produces one record and reads it back by aiokafka: SETTINGS(JSON) TOPIC VALUE."""

import asyncio
import json
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.abc import AbstractTokenProvider
from aiokafka.helpers import create_ssl_context

settings, topic, value = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]


class Token(AbstractTokenProvider):  # type: ignore[misc]
    """A provider of one token."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


async def main() -> None:
    """Produce and consume."""
    if "token" in settings:
        settings["sasl_oauth_token_provider"] = Token(settings.pop("token"))
    if "cafile" in settings:
        files = {name: settings.pop(name) for name in ("cafile", "certfile", "keyfile") if name in settings}
        settings["ssl_context"] = create_ssl_context(**files)
    async with AIOKafkaProducer(**settings) as producer:
        await producer.send_and_wait(topic, value.encode())
    consumer = AIOKafkaConsumer(**settings)
    await consumer.start()
    consumer.assign([TopicPartition(topic, 0)])
    await consumer.seek_to_beginning()
    print((await consumer.getone()).value.decode())
    await consumer.stop()


asyncio.run(main())
