"""The plot of `gregor perf-test producer --plot`: the throughput over time, and the percentiles of the latency."""

from __future__ import annotations

from pathlib import Path

from .line_plot import Panel, write_line_plot
from .perf_latency import BYTES_PER_MB, LatencyStatistics, percentiles

FRACTIONS = [step / 200 for step in range(200)] + [0.999]


def write_plot(path: Path, statistics: LatencyStatistics, title: str) -> None:
    """Draw both panels into an SVG file. Raises OSError."""
    throughput = [
        (window.end, window.size_bytes / max(window.end - window.start, 1e-9) / BYTES_PER_MB)
        for window in statistics.windows
        if window.count
    ]
    latencies = percentiles(statistics.samples, FRACTIONS)
    shares = [(fraction * 100, latency) for fraction, latency in zip(FRACTIONS, latencies, strict=True)]
    panels = [
        Panel("seconds", "MB/s", {"throughput": throughput}),
        Panel("percentile", "latency, ms", {"latency": shares}),
    ]
    write_line_plot(path, title, panels)
