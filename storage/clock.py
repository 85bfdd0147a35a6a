"""Wall-clock time as the log sees it: one injectable source, so that tests age records without waiting."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where the current time comes from."""

    def now_ms(self) -> int:
        """Return the milliseconds since the epoch."""


class SystemClock:
    """The machine's clock."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class ManualClock:
    """A clock that moves only when it is told to."""

    __slots__ = ("_now_ms",)

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, elapsed_ms: int) -> None:
        """Let `elapsed_ms` milliseconds pass."""
        self._now_ms += elapsed_ms

    def set(self, now_ms: int) -> None:
        """Set the clock to `now_ms`, which may be earlier than its present time."""
        self._now_ms = now_ms
