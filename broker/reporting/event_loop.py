"""The load of the event loop, under the names of Kafka's network and request handler threads, whose work it does."""

from __future__ import annotations

import time

from ..monitoring.metrics import Metrics

NAMES = (
    "kafka_network_socketserver_networkprocessoravgidle_percent",
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
)
LEAST_INTERVAL_S = 1.0
"""Readings that follow each other sooner give the same value."""


class EventLoopIdle:
    """A gauge of the share of time, 0 to 1, in which the event loop's thread used no CPU since the last reading."""

    def __init__(self, metrics: Metrics) -> None:
        self._read_at_s = time.monotonic()
        self._cpu_s = time.thread_time()
        self._share = 1.0
        for name in NAMES:
            metrics.gauge(name, self.share)

    def share(self) -> float:
        """Return the share since the last reading. Call this in the event loop's thread."""
        now_s, cpu_s = time.monotonic(), time.thread_time()
        elapsed_s = now_s - self._read_at_s
        if elapsed_s >= LEAST_INTERVAL_S:
            self._share = min(1.0, max(0.0, 1 - (cpu_s - self._cpu_s) / elapsed_s))
            self._read_at_s, self._cpu_s = now_s, cpu_s
        return self._share
