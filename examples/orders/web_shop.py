"""The web shop: a program of today, with an idempotent producer and compression.

python web_shop.py HOST:PORT
"""

from __future__ import annotations

import json
import random
import sys
from datetime import UTC, datetime, timedelta

from confluent_kafka import Message, Producer

OPENING = datetime(2030, 1, 1, 12, tzinfo=UTC)
COUNTRIES = ("DE", "SE", "FR")


def main() -> None:
    """Write the orders of an hour to the topic `web`, with headers and keys. Raises RuntimeError."""
    producer = Producer({"bootstrap.servers": sys.argv[1], "enable.idempotence": True, "compression.type": "zstd"})
    failures: list[object] = []

    def delivered(error: object, _: Message) -> None:
        if error is not None:
            failures.append(error)

    dice = random.Random(4)
    for number in range(900):
        at = OPENING + timedelta(seconds=4 * number)
        order = {"order": f"web-{number}", "country": dice.choice(COUNTRIES), "cents": dice.randrange(100, 9000)}
        value = json.dumps({**order, "at": at.isoformat()})
        producer.produce(
            "web",
            value,
            key=order["country"],
            headers={"shop": "web"},
            on_delivery=delivered,
        )
        producer.poll(0)
    producer.flush()
    if failures:
        raise RuntimeError(f"{len(failures)} orders were not delivered: {failures[0]}")
    print("900 records of format v2")


if __name__ == "__main__":
    main()
