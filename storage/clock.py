"""The clock of the log, an interface, so that tests can let records expire without waiting."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of the current time."""

    def now_ms(self) -> int:
        """Return the milliseconds since the epoch."""


class SystemClock:
    """A clock that returns the machine's time."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class ManualClock:
    """A clock that only `advance` and `set` change."""

    __slots__ = ("_now_ms",)

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, elapsed_ms: int) -> None:
        """Advance the clock by `elapsed_ms` milliseconds."""
        self._now_ms += elapsed_ms

    def set(self, now_ms: int) -> None:
        """Set the clock to `now_ms`, which may be earlier than its present time."""
        self._now_ms = now_ms
