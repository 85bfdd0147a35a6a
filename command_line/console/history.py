"""Samples of this broker's counters, taken every two seconds while the console is on, for its plots."""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from ...broker.app.lifetime import BrokerLifetime

INTERVAL_S = 2.0
MOST_SAMPLES = 300
"""Ten minutes."""
NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Sample:
    """The values of counters, which only grow, and of gauges at one time."""

    time_s: float
    messages_in: int
    bytes_in: int
    bytes_out: int
    requests: int
    converted_records: int
    conversion_cpu_s: float
    cpu_s: float
    resident_bytes: int


class History:
    """The latest samples of one broker."""

    def __init__(self, lifetime: BrokerLifetime) -> None:
        self._lifetime = lifetime
        self._samples: deque[Sample] = deque(maxlen=MOST_SAMPLES)

    async def run(self) -> None:
        """Take samples until cancelled."""
        while True:
            self._samples.append(self._sample())
            await trio.sleep(INTERVAL_S)

    @property
    def latest(self) -> Sample:
        """The latest sample."""
        return self._samples[-1] if self._samples else self._sample()

    def rates(self, read: Callable[[Sample], float]) -> list[float]:
        """Return a counter's growth per second between each sample and the next, the oldest first."""
        return [
            max(0.0, read(after) - read(before)) / max(after.time_s - before.time_s, 0.001)
            for before, after in itertools.pairwise(self._samples)
        ]

    def values(self, read: Callable[[Sample], float]) -> list[float]:
        """Return a gauge's values, the oldest first."""
        return [read(sample) for sample in self._samples]

    def _sample(self) -> Sample:
        services = self._lifetime.broker.services
        topics = services.metrics.topics.values()
        times = os.times()
        return Sample(
            time_s=trio.current_time(),
            messages_in=sum(counters.messages_in for counters in topics),
            bytes_in=sum(counters.bytes_in for counters in topics),
            bytes_out=sum(counters.bytes_out for counters in topics),
            requests=sum(services.clients.request_counts().values()),
            converted_records=sum(counters.fetch_conversion.record_count for counters in topics),
            conversion_cpu_s=sum(counters.fetch_conversion.cpu_ns for counters in topics) / NS_PER_S,
            cpu_s=times.user + times.system,
            resident_bytes=resident_bytes(),
        )


def resident_bytes() -> int:
    """Return this process's resident memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
