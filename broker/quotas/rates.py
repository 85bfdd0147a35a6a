"""Measured rates of clients: a rate over sliding samples, and a token bucket.

Both are Kafka's, so that throttle times agree: `Rate` with `SampledStat` (``quota.window.num`` samples of
``quota.window.size.seconds``) and `TokenBucket` (KIP-599).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

MAX_RATES = 10_000
"""Most rates of one kind that are kept, as clients may send any number of client ids."""


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

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Return the time after which the rate has fallen to ``limit`` units per second; 0 if it is not above."""
        self._forget_obsolete(now_ms)
        elapsed_ms = self._elapsed_ms(now_ms)
        rate = sum(units for _, units in self._samples) * 1000 / elapsed_ms
        return round((rate - limit) / limit * elapsed_ms) if rate > limit else 0

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


class TokenBucket:
    """A bucket of tokens that refills at the limit's rate; it starts full, and may be overdrawn once."""

    __slots__ = ("_tokens", "_updated_ms", "_window")

    def __init__(self, window: Window) -> None:
        self._window = window
        self._tokens = 0.0
        self._updated_ms = 0

    def take(self, tokens: float, limit: float, now_ms: int) -> None:
        """Take tokens, even if the bucket has too few."""
        self._refill(limit, now_ms)
        self._tokens -= tokens

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Return the time until the bucket is no longer overdrawn, in milliseconds."""
        self._refill(limit, now_ms)
        return max(0, round(-self._tokens / limit * 1000))

    def _refill(self, limit: float, now_ms: int) -> None:
        gained = limit * (now_ms - self._updated_ms) / 1000
        self._tokens = min(self._window.seconds * limit, self._tokens + gained)
        self._updated_ms = now_ms


K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


class Rates(Generic[K, R]):
    """A cache of rates by the clients that share them; the least recently used rate is dropped first."""

    def __init__(self, make: Callable[[], R]) -> None:
        self._make: Callable[[], R] = make
        self._rates: OrderedDict[K, R] = OrderedDict()

    def of(self, shared_by: K) -> R:
        """Return the rate, a new one if there is none."""
        rate = self._rates.get(shared_by)
        if rate is None:
            rate = self._rates[shared_by] = self._make()
            if len(self._rates) > MAX_RATES:
                self._rates.popitem(last=False)
        else:
            self._rates.move_to_end(shared_by)
        return rate
