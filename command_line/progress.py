"""A progress bar on standard error; nothing is drawn unless that is a terminal."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

from .asking import say

WIDTH = 40
SECONDS_BETWEEN_DRAWS = 0.1


class ProgressBar:
    """``[########............]  42 % 51,200/122,880 records  20,480/s  3 s left``."""

    def __init__(self, total: int, unit: str) -> None:
        self._total = max(total, 1)
        self._unit = unit
        self._is_drawn = sys.stderr.isatty()
        self._started_at = time.monotonic()
        self._drawn_at = 0.0
        self._is_visible = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._erase()

    def advance(self, done: int) -> None:
        """Show the number of finished items."""
        if not self._is_drawn:
            return
        now = time.monotonic()
        if now - self._drawn_at < SECONDS_BETWEEN_DRAWS:
            return
        self._drawn_at = now
        rate = done / max(now - self._started_at, 1e-9)
        filled = WIDTH * min(done, self._total) // self._total
        left = (self._total - done) / rate if rate > 0 else 0
        bar = "#" * filled + "." * (WIDTH - filled)
        sys.stderr.write(
            f"\r[{bar}] {100 * done // self._total:3d} % {done:,}/{self._total:,} {self._unit}"
            f"  {rate:,.0f}/s  {left:.0f} s left\x1b[K"
        )
        sys.stderr.flush()
        self._is_visible = True

    def say(self, line: str) -> None:
        """Print a line of output above the bar."""
        self._erase()
        say(line)

    def _erase(self) -> None:
        if self._is_visible:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._is_visible = False
