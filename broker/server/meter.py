"""A count with its rate (Kafka ``Meter``)."""

from __future__ import annotations

import trio

from .sampled_rate import SampledRate, Window

WINDOW = Window(sample_count=2, sample_ms=30_000)
"""The window of rates: Kafka's defaults of ``metrics.num.samples`` and ``metrics.sample.window.ms``."""


class Meter:
    """A count of events, or a sum of units, with its rate (Kafka ``Meter``)."""

    __slots__ = ("_rate", "total")

    def __init__(self, window: Window = WINDOW) -> None:
        self.total: float = 0
        """The number of events, or the sum of units, since the start."""
        self._rate = SampledRate(window)

    def record(self, units: float = 1) -> None:
        """Count an event that happens now, or add units."""
        self.total += units
        self._rate.record(units, _now_ms())

    def per_second(self) -> float:
        """Return the rate in the window, in events or units per second."""
        return self._rate.per_second(_now_ms())


def _now_ms() -> int:
    return int(trio.current_time() * 1000)
