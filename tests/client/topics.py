"""Topics for tests of the client, with names of their own."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from gregor.client import Admin, Producer
from gregor.client.admin import NewTopic


async def new_topic(bootstrap: str, partitions: int = 1, **configs: str) -> str:
    """Return an empty topic; keys of its configuration have underscores for dots."""
    name = f"topic-{uuid4().hex[:12]}"
    dotted = {key.replace("_", "."): value for key, value in configs.items()}
    async with Admin(bootstrap) as admin:
        await admin.create_topics([NewTopic(name, partitions, 1, dotted)])
    return name


async def filled_topic(bootstrap: str, partitions: int = 1, count: int = 100, **config: Any) -> str:
    """Return a topic with records 0, 1, 2... (timestamps 1000, 1001...), one partition after the other in turn."""
    name = await new_topic(bootstrap, partitions)
    async with Producer(bootstrap, linger_ms=5, **config) as producer:
        for n in range(count):
            await producer.send(name, b"%d" % n, partition=n % partitions, timestamp_ms=1000 + n)
    return name
