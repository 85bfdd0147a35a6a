"""A member that reads a topic and writes each record to another, exactly once: a process that tests kill.

Arguments: bootstrap servers, input topic, output topic, transactional id, and consumer settings as KEY=VALUE.
"""

from __future__ import annotations

import sys
from functools import partial

import trio

from gregor.client import Consumer, Producer


async def transform(bootstrap: str, source: str, target: str, transactional_id: str, *settings: str) -> None:
    """Transform until killed."""
    config = dict(setting.split("=", 1) for setting in settings)
    async with (
        Producer(bootstrap, transactional_id=transactional_id, transaction_timeout_ms=5_000) as producer,
        Consumer(
            bootstrap,
            enable_auto_commit=False,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            **config,
        ) as consumer,
    ):
        consumer.subscribe([source])
        while True:
            async with consumer.transaction(producer, max_records=20) as records:
                for record in records:
                    await producer.send(target, record.value, partition=record.partition)
                # Rebalances and kills must happen in the middle of a member's work.
                await trio.sleep(0.01)


if __name__ == "__main__":
    trio.run(partial(transform, *sys.argv[1:]))
