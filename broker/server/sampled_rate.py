"""A rate over sliding samples: Kafka's `Rate` with `SampledStat`, so that quotas and metrics agree with Kafka's."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Window:
    """A measuring window: the number of samples and their length."""

    sample_count: int
    sample_ms: int

    @property
    def seconds(self) -> float:
        """The length of all samples, in seconds."""
        return self.sample_count * self.sample_ms / 1000


class SampledRate:
    """A rate in units per second over the last samples, with all but one counted as full."""

    __slots__ = ("_samples", "_window")

    def __init__(self, window: Window) -> None:
        self._window = window
        self._samples: deque[list[float]] = deque()
        """[start in ms, units] of each sample, the oldest first."""

    def record(self, units: float, now_ms: int) -> None:
        """Count ``units``; negative units undo an earlier count."""
        if not self._samples or now_ms - self._samples[-1][0] >= self._window.sample_ms:
            self._samples.append([now_ms, 0.0])
            while len(self._samples) > self._window.sample_count:
                self._samples.popleft()
        self._samples[-1][1] += units

    def per_second(self, now_ms: int) -> float:
        """Return the rate in units per second."""
        self._forget_obsolete(now_ms)
        return sum(units for _, units in self._samples) * 1000 / self._elapsed_ms(now_ms)

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Return the time after which the rate has fallen to ``limit`` units per second; 0 if it is not above."""
        rate = self.per_second(now_ms)
        return round((rate - limit) / limit * self._elapsed_ms(now_ms)) if rate > limit else 0

    def exceeds(self, limit: float, now_ms: int) -> bool:
        """Return whether the rate is above ``limit`` units per second."""
        self._forget_obsolete(now_ms)
        return sum(units for _, units in self._samples) * 1000 > limit * self._elapsed_ms(now_ms)

    def _forget_obsolete(self, now_ms: int) -> None:
        span_ms = self._window.sample_count * self._window.sample_ms
        while self._samples and now_ms - self._samples[0][0] >= span_ms:
            self._samples.popleft()

    def _elapsed_ms(self, now_ms: int) -> int:
        sample_ms = self._window.sample_ms
        elapsed_ms = int(now_ms - self._samples[0][0]) if self._samples else 0
        missing = self._window.sample_count - 1 - elapsed_ms // sample_ms
        return max(elapsed_ms + max(missing, 0) * sample_ms, sample_ms)
