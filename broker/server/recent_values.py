"""Statistics of recent values over Kafka's default window of metrics, two samples of 30 s (`SampledStat`)."""

from __future__ import annotations

import math
from collections import deque
from time import monotonic

SAMPLE_S = 30.0
SAMPLE_COUNT = 2


class RecentValues:
    """A number, sum and maximum of values, in the samples of the last minute."""

    def __init__(self) -> None:
        self._samples: deque[list[float]] = deque(maxlen=SAMPLE_COUNT)
        """[start in seconds, count, sum, maximum] of each sample, the oldest first."""

    def record(self, value: float) -> None:
        """Add a value to the present sample."""
        now_s = monotonic()
        if not self._samples or now_s - self._samples[-1][0] >= SAMPLE_S:
            self._samples.append([now_s, 0, 0.0, -math.inf])
        sample = self._samples[-1]
        sample[1] += 1
        sample[2] += value
        sample[3] = max(sample[3], value)

    def average(self) -> float:
        """Return the average of the values; NaN if there is none, as in Kafka."""
        samples = self._recent()
        count = sum(sample[1] for sample in samples)
        return sum(sample[2] for sample in samples) / count if count else math.nan

    def maximum(self) -> float:
        """Return the largest value; NaN if there is none."""
        return max((sample[3] for sample in self._recent()), default=math.nan)

    def rate(self) -> float:
        """Return the sum of the values per second, over the whole window (Kafka `Rate`)."""
        return sum(sample[2] for sample in self._recent()) / (SAMPLE_S * SAMPLE_COUNT)

    def _recent(self) -> list[list[float]]:
        oldest_s = monotonic() - SAMPLE_S * SAMPLE_COUNT
        return [sample for sample in self._samples if sample[0] >= oldest_s]
