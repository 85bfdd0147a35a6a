"""Measured rates of clients: a token bucket, and a cache of rates by the clients that share them.

The bucket is Kafka's `TokenBucket` (KIP-599), so that throttle times agree; rates are `server.sampled_rate`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from ..server.sampled_rate import Window

MAX_RATES = 10_000
"""Most rates of one kind that are kept, as clients may send any number of client ids."""


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
