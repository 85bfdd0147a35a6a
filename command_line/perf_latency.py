"""The latencies of `gregor perf-test producer`, by window and in all (Kafka's ProducerPerformance)."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

SAMPLES_AT_MOST = 500_000
WINDOW_SECONDS = 5.0
BYTES_PER_MB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class WindowSummary:
    """The counters of one window of the run, in seconds since its start."""

    start: float
    end: float
    count: int
    size_bytes: int
    latency_sum_ms: float
    latency_max_ms: float

    @property
    def line(self) -> str:
        """The line of kafka-producer-perf-test for a window."""
        elapsed = max(self.end - self.start, 1e-9)
        return (
            f"{self.count} records sent, {self.count / elapsed:.1f} records/sec "
            f"({self.size_bytes / elapsed / BYTES_PER_MB:.2f} MB/sec), "
            f"{self.latency_sum_ms / max(self.count, 1):.1f} ms avg latency, {self.latency_max_ms:.1f} ms max latency."
        )


class LatencyStatistics:
    """The latencies of records in whole milliseconds, sampled so that at most half a million are kept."""

    def __init__(self, expected_count: int, started_at: float) -> None:
        self.windows: list[WindowSummary] = []
        self.samples = array("d")
        self.count = 0
        self._every = max(1, expected_count // SAMPLES_AT_MOST)
        self.started_at = started_at
        self._size_bytes = 0
        self._sum_ms = 0.0
        self._max_ms = 0.0
        self._begin_window(started_at)

    def _begin_window(self, now: float) -> None:
        self._window_start = now
        self._window_count = 0
        self._window_bytes = 0
        self._window_sum_ms = 0.0
        self._window_max_ms = 0.0

    def record(self, latency_ms: float, size_bytes: int, now: float) -> WindowSummary | None:
        """Count one acknowledged record; return the window that it has completed, if any."""
        if self.count % self._every == 0:
            self.samples.append(latency_ms)
        self.count += 1
        self._size_bytes += size_bytes
        self._sum_ms += latency_ms
        self._max_ms = max(self._max_ms, latency_ms)
        self._window_count += 1
        self._window_bytes += size_bytes
        self._window_sum_ms += latency_ms
        self._window_max_ms = max(self._window_max_ms, latency_ms)
        if now - self._window_start < WINDOW_SECONDS:
            return None
        return self.end_window(now)

    def end_window(self, now: float) -> WindowSummary:
        """Close the current window and return it."""
        summary = WindowSummary(
            self._window_start - self.started_at,
            now - self.started_at,
            self._window_count,
            self._window_bytes,
            self._window_sum_ms,
            self._window_max_ms,
        )
        self.windows.append(summary)
        self._begin_window(now)
        return summary

    def total_line(self, now: float) -> str:
        """Return the last line of kafka-producer-perf-test."""
        elapsed = max(now - self.started_at, 1e-9)
        p50, p95, p99, p999 = percentiles(self.samples, (0.5, 0.95, 0.99, 0.999))
        return (
            f"{self.count} records sent, {self.count / elapsed:.6f} records/sec "
            f"({self._size_bytes / elapsed / BYTES_PER_MB:.2f} MB/sec), "
            f"{self._sum_ms / max(self.count, 1):.2f} ms avg latency, {self._max_ms:.2f} ms max latency, "
            f"{p50:.0f} ms 50th, {p95:.0f} ms 95th, {p99:.0f} ms 99th, {p999:.0f} ms 99.9th."
        )


def percentiles(samples: Sequence[float], fractions: Sequence[float]) -> list[float]:
    """Return the values below which these fractions of the samples are; 0 without samples."""
    ordered = sorted(samples)
    if not ordered:
        return [0.0 for _ in fractions]
    return [ordered[min(int(fraction * len(ordered)), len(ordered) - 1)] for fraction in fractions]
