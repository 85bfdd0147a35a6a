"""What a client counts, under the names of Kafka's own client metrics.

Rates are per second over the last 30 s or so (`metrics.sample.window.ms` x `metrics.num.samples`, Kafka's defaults).
"""

from collections import defaultdict, deque

import trio

RATE_WINDOW_SECONDS = 60.0
SAMPLE_SECONDS = 1.0


class WindowedRate:
    """A count and its rate over the last minute, kept in one-second samples."""

    __slots__ = ("_samples", "_started_at", "total")

    def __init__(self, now: float) -> None:
        self.total = 0
        self._started_at = now
        self._samples: deque[tuple[float, int]] = deque()

    def add(self, amount: int, now: float) -> None:
        """Count `amount` at `now` (seconds)."""
        self.total += amount
        if self._samples and now - self._samples[-1][0] < SAMPLE_SECONDS:
            at, counted = self._samples[-1]
            self._samples[-1] = (at, counted + amount)
        else:
            self._samples.append((now, amount))
        self._drop_old(now)

    def rate(self, now: float) -> float:
        """Events per second over the window, or since the start if that is shorter."""
        self._drop_old(now)
        elapsed = max(min(now - self._started_at, RATE_WINDOW_SECONDS), SAMPLE_SECONDS)
        return sum(amount for _, amount in self._samples) / elapsed

    def _drop_old(self, now: float) -> None:
        while self._samples and now - self._samples[0][0] > RATE_WINDOW_SECONDS:
            self._samples.popleft()


class Metrics:
    """The counters of one client, by name; those of single brokers have `node-N.` before it."""

    def __init__(self) -> None:
        self._rates: dict[str, WindowedRate] = {}
        self._totals: defaultdict[str, int] = defaultdict(int)

    def count(self, name: str, amount: int = 1) -> None:
        """Add to `name-total` and `name-rate`."""
        now = trio.current_time()
        rate = self._rates.get(name)
        if rate is None:
            rate = self._rates[name] = WindowedRate(now)
        rate.add(amount, now)

    def submitted(self, node: str, size_bytes: int) -> None:
        """Note a request of that size to a broker."""
        self._totals[f"{node}.outgoing-byte-total"] += size_bytes
        self._totals[f"{node}.request-total"] += 1

    def received(self, node: str, size_bytes: int) -> None:
        """Note bytes that came from a broker."""
        self._totals[f"{node}.incoming-byte-total"] += size_bytes

    def snapshot(self) -> dict[str, float]:
        """All values by now."""
        now = trio.current_time()
        values: dict[str, float] = dict(self._totals)
        for name, rate in self._rates.items():
            values[f"{name}-total"] = rate.total
            values[f"{name}-rate"] = rate.rate(now)
        return values
