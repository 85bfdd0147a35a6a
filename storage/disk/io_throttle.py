"""A limit on the rate of background reads and writes (`log.cleaner.io.max.bytes.per.second`; Kafka `Throttler`)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

LONGEST_DELAY_S = 10.0
"""The longest single delay, however low the rate, so that a waiting thread notices a cancellation."""


class IoThrottle:
    """A rate limit that several threads share; without a limit nothing is delayed."""

    def __init__(self, bytes_per_second: float = float("inf"), *, now_s: Callable[[], float] = time.monotonic) -> None:
        self.bytes_per_second = bytes_per_second
        """The limit in bytes per second; it may be changed at any time."""
        self._now_s = now_s
        self._lock = threading.Lock()
        self._paid_until_s = 0.0

    def delay_after(self, size_bytes: int) -> float:
        """Return the delay in seconds after `size_bytes` were read or written; may be called in any thread."""
        cost_s = size_bytes / self.bytes_per_second
        with self._lock:
            now_s = self._now_s()
            self._paid_until_s = max(self._paid_until_s, now_s) + cost_s
            return min(self._paid_until_s - now_s, LONGEST_DELAY_S) if cost_s > 1e-9 else 0.0
