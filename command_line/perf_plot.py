"""The plot of `gregor perf-test producer --plot`: an SVG written by hand, so that no plotting library is needed."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from .perf_latency import BYTES_PER_MB, LatencyStatistics, percentiles

WIDTH, PANEL_HEIGHT, MARGIN = 720, 200, 60
FRACTIONS = [step / 200 for step in range(200)] + [0.999]
INK = "#333"
LINE_COLOUR = "#1f6feb"


def write_plot(path: Path, statistics: LatencyStatistics, title: str) -> None:
    """Draw the throughput over time, and the percentiles of the latency."""
    throughput = [
        (window.end, window.size_bytes / max(window.end - window.start, 1e-9) / BYTES_PER_MB)
        for window in statistics.windows
        if window.count
    ]
    latencies = percentiles(statistics.samples, FRACTIONS)
    shares = [(fraction * 100, latency) for fraction, latency in zip(FRACTIONS, latencies, strict=True)]
    panels = [
        _panel(0, "seconds", "MB/s", throughput),
        _panel(1, "percentile", "latency, ms", shares),
    ]
    height = len(panels) * (PANEL_HEIGHT + MARGIN) + MARGIN
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH + 2 * MARGIN}" height="{height}" '
        f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>'
        f'<text x="{MARGIN}" y="24" font-size="15">{escape(title)}</text>{"".join(panels)}</svg>\n'
    )


def _panel(index: int, x_name: str, y_name: str, points: Sequence[tuple[float, float]]) -> str:
    top = 40 + index * (PANEL_HEIGHT + MARGIN)
    x_end = max((x for x, _ in points), default=1.0) or 1.0
    y_end = max((y for _, y in points), default=1.0) * 1.05 or 1.0
    placed = " ".join(
        f"{MARGIN + x / x_end * WIDTH:.1f},{top + PANEL_HEIGHT - y / y_end * PANEL_HEIGHT:.1f}" for x, y in points
    )
    grid = "".join(_tick(top, fraction / 4, x_end, y_end) for fraction in range(5))
    return (
        f'{grid}<polyline points="{placed}" fill="none" stroke="{LINE_COLOUR}" stroke-width="2"/>'
        f'<text x="{MARGIN}" y="{top - 4}" fill="{INK}">{escape(y_name)}</text>'
        f'<text x="{MARGIN + WIDTH}" y="{top + PANEL_HEIGHT + 30}" text-anchor="end" fill="{INK}">'
        f"{escape(x_name)}</text>"
    )


def _tick(top: int, fraction: float, x_end: float, y_end: float) -> str:
    y = top + PANEL_HEIGHT * (1 - fraction)
    x = MARGIN + WIDTH * fraction
    return (
        f'<line x1="{MARGIN}" x2="{MARGIN + WIDTH}" y1="{y}" y2="{y}" stroke="#ddd"/>'
        f'<text x="{MARGIN - 6}" y="{y + 4}" text-anchor="end" fill="{INK}">{y_end * fraction:.3g}</text>'
        f'<text x="{x}" y="{top + PANEL_HEIGHT + 16}" text-anchor="middle" fill="{INK}">{x_end * fraction:.3g}</text>'
    )
