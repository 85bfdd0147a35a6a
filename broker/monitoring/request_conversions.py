"""Kafka's histograms of conversions by request: MessageConversionsTimeMs and TemporaryMemoryBytes.

As in Kafka, a request without a conversion counts with 0. A histogram has the newest `SAMPLE_SIZE` requests; only
requests with a conversion are stored, with their number, so that the others cost one addition.
Source: Kafka `RequestChannel.Request.updateRequestMetrics`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from ..server.client_connection import ConversionCost

SAMPLE_SIZE = 1028
"""The size of Kafka's histograms (Yammer `Histogram`)."""
QUANTILES = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
"""The shares of Kafka's attributes `50thPercentile` to `999thPercentile`, as the JMX exporter writes them."""
NS_PER_MS = 1_000_000


class ConvertedRequest(NamedTuple):
    """One request's conversions: its number among all requests, and what they have cost."""

    number: int
    cpu_ms: float
    temporary_bytes: int


class RequestConversions:
    """The newest requests of one API; `request_count` counts all."""

    def __init__(self) -> None:
        self.request_count = 0
        self._converted: deque[ConvertedRequest] = deque(maxlen=SAMPLE_SIZE)

    def record(self, cost: ConversionCost) -> None:
        """Record the conversions of the newest request, or of one shortly before it."""
        self._converted.append(ConvertedRequest(self.request_count, cost.cpu_ns / NS_PER_MS, cost.temporary_bytes))

    def samples(self) -> dict[str, list[float]]:
        """Return the values of the newest requests by the histogram's name, ascending."""
        oldest = self.request_count - SAMPLE_SIZE
        newest = [converted for converted in self._converted if converted.number > oldest]
        zeros = [0.0] * (min(self.request_count, SAMPLE_SIZE) - len(newest))
        return {
            "MessageConversionsTimeMs": zeros + sorted(converted.cpu_ms for converted in newest),
            "TemporaryMemoryBytes": zeros + sorted(float(converted.temporary_bytes) for converted in newest),
        }


def quantile(ordered: list[float], share: float) -> float:
    """Return a quantile of ascending values as Yammer's `Snapshot.getValue` interpolates it; 0 without values."""
    if not ordered:
        return 0.0
    place = share * (len(ordered) + 1)
    if place < 1:
        return ordered[0]
    if place >= len(ordered):
        return ordered[-1]
    lower, upper = ordered[int(place) - 1], ordered[int(place)]
    return lower + (place - int(place)) * (upper - lower)


@dataclass(slots=True, eq=False)
class RequestConversionCost(ConversionCost):
    """The cost of all conversions of one request, recorded when the last of `parts` has ended."""

    conversions: RequestConversions | None = None
    parts: int = 0

    def ended(self) -> None:
        """Count the end of one part."""
        self.parts -= 1
        if self.parts == 0 and self.conversions is not None:
            self.conversions.record(self)
