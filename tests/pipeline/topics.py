"""Topics for tests of the pipeline, made and filled through the client."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any

import trio

from gregor.client import Admin, Producer
from gregor.client.admin import NewTopic
from gregor.protocol.records import v2
from gregor.protocol.records.record import Record

START_MS = 1_700_000_000_000
_numbers = itertools.count()


def new_topic(bootstrap: str, partitions: int = 1, **configs: str) -> str:
    """Return an empty topic with a name of its own."""
    name = f"topic-{next(_numbers)}"
    make_topic(bootstrap, name, partitions, **configs)
    return name


def make_topic(bootstrap: str, name: str, partitions: int = 1, **configs: str) -> None:
    """Create an empty topic; keys of its configuration have underscores for dots."""

    async def make() -> None:
        # The timestamps of the records are years old.
        dotted = {"retention.ms": "-1"} | {key.replace("_", "."): value for key, value in configs.items()}
        async with Admin(bootstrap) as admin:
            await admin.create_topics([NewTopic(name, partitions, configs=dotted)])

    trio.run(make)


def delete_topic(bootstrap: str, name: str) -> None:
    """Delete the topic."""

    async def delete() -> None:
        async with Admin(bootstrap) as admin:
            await admin.delete_topics([name])

    trio.run(delete)


def delete_records(bootstrap: str, topic: str, partition: int, before: int) -> None:
    """Delete the records below an offset, as retention does."""

    async def delete() -> None:
        async with Admin(bootstrap) as admin:
            await admin.delete_records({(topic, partition): before})

    trio.run(delete)


def fill(bootstrap: str, topic: str, count: int, *, partition: int = 0, first: int = 0, batch: int = 10) -> None:
    """Append records first, first + 1 ...: their number is their value, and their time counts from START_MS."""

    async def produce() -> None:
        async with Producer(bootstrap) as producer:
            for start in range(first, first + count, batch):
                numbers = range(start, min(start + batch, first + count))
                await producer.send_batch(topic, partition, stored(numbers))

    trio.run(produce)


def stored(numbers: Sequence[int]) -> bytes:
    """Return a batch of such records."""
    return v2.build_batch(
        [Record(index, START_MS + number, b"k%d" % number, b"%d" % number) for index, number in enumerate(numbers)]
    )


def transact(bootstrap: str, topic: str, numbers: Sequence[int], *, commits: bool) -> None:
    """Append records in a transaction, and end it."""
    trio.run(partial(_transact, bootstrap, topic, numbers, commits))


async def _transact(bootstrap: str, topic: str, numbers: Sequence[int], commits: bool) -> None:
    settings: dict[str, Any] = {"transactional_id": f"tests-{topic}"}
    async with Producer(bootstrap, **settings) as producer:
        try:
            async with producer.transaction():
                await producer.send_batch(topic, 0, stored(numbers))
                await producer.flush()
                if not commits:
                    raise KeyError("as if something went wrong")
        except KeyError:
            pass
