"""The tills of the shops: programs of 2014, which speak the protocol of Kafka 0.8.2 (messages of format v0).

    python tills.py HOST:PORT [--late]

Their messages have no timestamps, a till that gets no answer sends its message again, and some tills are offline for
a while: with --late they send what they could not send before.
"""

from __future__ import annotations

import json
import random
import sys
from datetime import UTC, datetime, timedelta

from kafka import KafkaProducer

OPENING = datetime(2030, 1, 1, 12, tzinfo=UTC)
COUNTRIES = ("DE", "SE", "IT")


def orders() -> list[bytes]:
    """Return the orders of an hour, in the order of their times; some twice, and some of a till that is broken."""
    dice = random.Random(8)
    found = []
    for number in range(600):
        order = {
            "order": f"till-{number}",
            "country": dice.choice(COUNTRIES),
            "cents": dice.randrange(100, 5000),
            "at": (OPENING + timedelta(seconds=6 * number)).isoformat(),
        }
        if number % 50 == 7:
            order["cents"] = -1
        message = json.dumps(order).encode()
        found.append(message)
        if number % 10 == 3:
            found.append(message)
        if number % 100 == 9:
            found.append(message[: len(message) // 2])
    return found


def late_orders() -> list[bytes]:
    """Return an order that is late, and one that is too late: its window is closed."""
    times = (OPENING + timedelta(minutes=56), OPENING + timedelta(minutes=2))
    return [
        json.dumps({"order": f"late-{number}", "country": "IT", "cents": 100_000, "at": at.isoformat()}).encode()
        for number, at in enumerate(times)
    ]


def main() -> None:
    """Send the orders to the topic `tills`."""
    messages = late_orders() if "--late" in sys.argv else orders()
    producer = KafkaProducer(bootstrap_servers=sys.argv[1], api_version=(0, 8, 2), acks=1)
    for message in messages:
        producer.send("tills", message)
    producer.flush()
    print(f"{len(messages)} messages of format v0")


if __name__ == "__main__":
    main()
