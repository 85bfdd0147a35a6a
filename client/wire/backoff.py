"""The exponential back-off with jitter, which keeps many clients from returning at the same instant."""

from random import Random

JITTER = 0.2
"""Kafka's CommonClientConfigs.RETRY_BACKOFF_JITTER."""


def backoff_seconds(failures: int, initial_ms: int, max_ms: int, random: Random) -> float:
    """Return the seconds to wait after `failures` (1 and up) in a row: doubling up to `max_ms`, plus or minus 20 %."""
    wait_ms = min(initial_ms << min(failures - 1, 30), max_ms)
    return wait_ms / 1000 * random.uniform(1 - JITTER, 1 + JITTER)
