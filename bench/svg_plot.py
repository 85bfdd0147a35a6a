"""Line plots as SVG, for the measurements' documents."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

WIDTH, HEIGHT, LEFT, TOP = 640, 300, 80, 50
COLOURS = ("#1f6feb", "#d1242f", "#1a7f37", "#8250df", "#bf8700")
Line = Sequence[tuple[float, float]]


def write_lines(
    path: Path, title: str, x_name: str, y_name: str, lines: Mapping[str, Line], *, is_logarithmic: bool = False
) -> None:
    """Draw named lines into one plot; logarithmic in both directions if requested (all values above 0 then)."""
    scale = math.log10 if is_logarithmic else float
    points = [(scale(x), scale(y)) for line in lines.values() for x, y in line]
    x_low, x_high = min(x for x, _ in points), max(x for x, _ in points)
    y_low, y_high = min(0.0, *(y for _, y in points)), max(y for _, y in points)
    if is_logarithmic:
        y_low = math.floor(min(y for _, y in points))

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - x_low) / ((x_high - x_low) or 1)
        up = (y - y_low) / ((y_high - y_low) or 1)
        return LEFT + across * WIDTH, TOP + (1 - up) * HEIGHT

    parts = [f'<text x="{LEFT}" y="24" font-size="15">{escape(title)}</text>']
    for step in range(5):
        x_value, y_value = x_low + (x_high - x_low) * step / 4, y_low + (y_high - y_low) * step / 4
        x, y = place(x_value, y_value)
        shown_x, shown_y = (10**x_value, 10**y_value) if is_logarithmic else (x_value, y_value)
        parts.append(
            f'<line x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_short(shown_y)}</text>'
            f'<text x="{x:.1f}" y="{TOP + HEIGHT + 18}" text-anchor="middle">{_short(shown_x)}</text>'
        )
    for index, (name, line) in enumerate(lines.items()):
        colour = COLOURS[index % len(COLOURS)]
        placed = " ".join("{:.1f},{:.1f}".format(*place(scale(x), scale(y))) for x, y in line)
        parts.append(
            f'<polyline points="{placed}" fill="none" stroke="{colour}" stroke-width="2"/>'
            f'<text x="{LEFT + 12}" y="{TOP + 16 + 18 * index}" fill="{colour}">{escape(name)}</text>'
        )
    parts.append(f'<text x="{LEFT + WIDTH}" y="{TOP + HEIGHT + 36}" text-anchor="end">{escape(x_name)}</text>')
    parts.append(f'<text x="{LEFT}" y="{TOP - 8}">{escape(y_name)}</text>')
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 40}" height="{TOP + HEIGHT + 50}" '
        f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>'
        f"{''.join(parts)}</svg>\n"
    )


def _short(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"
