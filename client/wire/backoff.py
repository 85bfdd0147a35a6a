"""Waiting longer after each failure, with jitter, so that many clients do not come back at the same instant."""

from random import Random

JITTER = 0.2
"""Kafka's CommonClientConfigs.RETRY_BACKOFF_JITTER."""


def backoff_seconds(failures: int, initial_ms: int, max_ms: int, random: Random) -> float:
    """Seconds to wait after `failures` (1 and up) in a row: doubling up to `max_ms`, give or take 20 %."""
    wait_ms = min(initial_ms << min(failures - 1, 30), max_ms)
    return wait_ms / 1000 * random.uniform(1 - JITTER, 1 + JITTER)
