"""The metrics of a client, under the names of Kafka's own client metrics.

A metric has a group, a name and tags, as in Kafka: `producer-metrics:batch-split-rate:{client-id=x}`. Names that
begin with `gregor.` are ours. Totals count from the start of the client; rates are per second over the last minute
(two windows of `metrics.sample.window.ms`, as in Kafka). All metrics except those of single brokers exist from the
start, with the value 0.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import trio

RATE_WINDOW_SECONDS = 60.0
SAMPLE_SECONDS = 1.0

ClientKind = Literal["producer", "consumer", "admin-client"]

_COUNTED: Mapping[ClientKind, Mapping[str, str]] = {
    "producer": {
        "record-send": "producer-metrics",
        "record-retry": "producer-metrics",
        "record-error": "producer-metrics",
        "batch-split": "producer-metrics",
        "gregor.batch-send": "producer-metrics",
        "gregor.metadata-request": "producer-metrics",
    },
    "consumer": {"fetch": "consumer-fetch-manager-metrics"},
    "admin-client": {},
}
"""The counters of `Metrics.count` for each kind of client, and the metric group of each counter in Kafka."""


class MetricName(NamedTuple):
    """The name of one metric (Kafka's `MetricName`); its text is in the form that Kafka's tools print."""

    group: str
    """`producer-metrics`, `producer-node-metrics`, `consumer-fetch-manager-metrics`..."""
    name: str
    tags: tuple[tuple[str, str], ...]
    """`client-id`, and `node-id` for the metrics of one broker, in order."""

    def __str__(self) -> str:
        tags = ", ".join(f"{key}={value}" for key, value in self.tags)
        return f"{self.group}:{self.name}:{{{tags}}}"


class MetricValues(dict[MetricName, float]):
    """The values of all metrics of a client at one time."""

    def value(self, name: str, *, node: str | None = None) -> float:
        """Return the metric `name` of the whole client, or of one broker (`node="node-0"`).

        Raises KeyError if there is no such metric.
        """
        for metric, value in self.items():
            if metric.name == name and dict(metric.tags).get("node-id") == node:
                return value
        raise KeyError(name if node is None else f"{name} of {node}")


class WindowedRate:
    """A count and its rate over the last minute, kept in one-second samples."""

    __slots__ = ("_counted", "_samples", "_started_at", "_until", "total")

    def __init__(self) -> None:
        self.total = 0
        self._started_at: float | None = None
        self._samples: deque[tuple[float, int]] = deque()
        self._until = -math.inf
        """The end of the newest sample, which is not yet in `_samples`."""
        self._counted = 0

    def add(self, amount: int, now: float) -> None:
        """Count `amount` at `now` (seconds)."""
        self.total += amount
        if now < self._until:
            self._counted += amount
            return
        if self._started_at is None:
            self._started_at = now
        else:
            self._samples.append((self._until - SAMPLE_SECONDS, self._counted))
        self._until = now + SAMPLE_SECONDS
        self._counted = amount
        self._drop_old(now)

    def rate(self, now: float) -> float:
        """Return events per second over the window, or over the time since the first event if that time is shorter; 0
        before the first event.
        """
        self._drop_old(now)
        if self._started_at is None:
            return 0.0
        elapsed = max(min(now - self._started_at, RATE_WINDOW_SECONDS), SAMPLE_SECONDS)
        is_recent = now - (self._until - SAMPLE_SECONDS) <= RATE_WINDOW_SECONDS
        return (sum(amount for _, amount in self._samples) + (self._counted if is_recent else 0)) / elapsed

    def _drop_old(self, now: float) -> None:
        while self._samples and now - self._samples[0][0] > RATE_WINDOW_SECONDS:
            self._samples.popleft()


class _Traffic:
    """The requests and bytes sent to one broker, and the bytes received from it."""

    __slots__ = ("incoming_bytes", "outgoing_bytes", "requests")

    def __init__(self) -> None:
        self.incoming_bytes = WindowedRate()
        self.outgoing_bytes = WindowedRate()
        self.requests = WindowedRate()

    def sensors(self) -> dict[str, WindowedRate]:
        """Return the counters, by the first part of their metrics' names."""
        return {
            "incoming-byte": self.incoming_bytes,
            "outgoing-byte": self.outgoing_bytes,
            "request": self.requests,
        }


class Metrics:
    """The counters of one client.

    Its traffic is counted for each broker: `node-0`, or an address of `bootstrap.servers`.
    """

    def __init__(self, kind: ClientKind = "admin-client", client_id: str = "") -> None:
        self._kind = kind
        self._tags = (("client-id", client_id),)
        self._groups = _COUNTED[kind]
        self._counted = {name: WindowedRate() for name in self._groups}
        self._traffic: dict[str, _Traffic] = {}
        self._gauges: dict[str, Callable[[], float]] = {}

    def count(self, name: str, amount: int = 1) -> None:
        """Add `amount` to `name-total` and `name-rate`.

        Raises KeyError for a counter that this kind of client does not have.
        """
        self._counted[name].add(amount, trio.current_time())

    def counter(self, name: str) -> WindowedRate:
        """Return the counter `name`, for callers that count often and know the time. Raises KeyError as `count`."""
        return self._counted[name]

    def measure(self, name: str, measured: Callable[[], float]) -> None:
        """Register the function `measured`, whose result is the value of the metric `name` from now on."""
        self._gauges[name] = measured

    def submitted(self, node: str, size_bytes: int, now: float) -> None:
        """Count a request of `size_bytes` that was sent to a broker at `now` (trio's clock)."""
        traffic = self._of(node)
        traffic.outgoing_bytes.add(size_bytes, now)
        traffic.requests.add(1, now)

    def received(self, node: str, size_bytes: int, now: float) -> None:
        """Count bytes that were received from a broker at `now` (trio's clock)."""
        self._of(node).incoming_bytes.add(size_bytes, now)

    def _of(self, node: str) -> _Traffic:
        traffic = self._traffic.get(node)
        if traffic is None:
            traffic = self._traffic[node] = _Traffic()
        return traffic

    def snapshot(self) -> MetricValues:
        """Return the current values of all metrics."""
        now = trio.current_time()
        values = MetricValues()
        for name, sensor in self._counted.items():
            values[MetricName(self._groups[name], f"{name}-total", self._tags)] = sensor.total
            values[MetricName(self._groups[name], f"{name}-rate", self._tags)] = sensor.rate(now)
        for name, measured in self._gauges.items():
            values[MetricName(f"{self._kind}-metrics", name, self._tags)] = measured()
        for name in _Traffic().sensors():
            for suffix in ("total", "rate"):
                values[MetricName(f"{self._kind}-metrics", f"{name}-{suffix}", self._tags)] = 0.0
        for node, traffic in self._traffic.items():
            for name, sensor in traffic.sensors().items():
                for suffix, value in (("total", float(sensor.total)), ("rate", sensor.rate(now))):
                    metric = f"{name}-{suffix}"
                    values[MetricName(f"{self._kind}-metrics", metric, self._tags)] += value
                    values[MetricName(f"{self._kind}-node-metrics", metric, (*self._tags, ("node-id", node)))] = value
        return values
