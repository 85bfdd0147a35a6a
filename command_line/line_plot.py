"""Line plots in an SVG file, of `gregor perf-test --plot` and of bench/.

Written by hand: plotly needs a browser to write an SVG file, and matplotlib needs numpy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

WIDTH, HEIGHT = 640, 220
"""The area of a panel's lines, in pixels."""
LEFT, RIGHT, ABOVE, BELOW = 80, 40, 60, 40
"""Margins of a panel; the first one has the title above it."""
INTERVALS = 4
"""Grid intervals in each direction."""
COLOURS = ("#1f6feb", "#d1242f", "#1a7f37", "#8250df", "#bf8700")
SUFFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
Line = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Panel:
    """A pair of axes with lines, which have names in a legend if there are several.

    The axes begin at 0, or at the smallest values if ``is_logarithmic`` (all values above 0 then).
    """

    x_name: str
    y_name: str
    lines: Mapping[str, Line]
    is_logarithmic: bool = False


def write_line_plot(path: Path, title: str, panels: Sequence[Panel]) -> None:
    """Draw panels, one below the other, into an SVG file; its directory is created. Raises OSError."""
    panel_height = ABOVE + HEIGHT + BELOW
    drawn = "".join(
        f'<g transform="translate({LEFT},{index * panel_height + ABOVE})">{"".join(_parts(panel))}</g>'
        for index, panel in enumerate(panels)
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + RIGHT}" height="{len(panels) * panel_height}" '
        f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>'
        f'<text x="{LEFT}" y="24" font-size="15">{escape(title)}</text>{drawn}</svg>\n',
        encoding="utf-8",
    )


@dataclass(frozen=True)
class _Axis:
    """The values of an axis, scaled; they are drawn at the fractions 0 to 1 of its length."""

    low: float
    high: float
    is_logarithmic: bool

    @classmethod
    def of(cls, values: Sequence[float], is_logarithmic: bool) -> _Axis:
        if is_logarithmic:
            return cls(math.log10(min(values)), math.log10(max(values)), True)
        return cls(min(0.0, *values, 0.0), max(0.0, *values, 0.0), False)

    def fraction(self, value: float) -> float:
        scaled = math.log10(value) if self.is_logarithmic else value
        return (scaled - self.low) / ((self.high - self.low) or 1)

    def label(self, fraction: float) -> str:
        """Return the value at a fraction in three digits, such as 1.5k."""
        scaled = self.low + (self.high - self.low) * fraction
        value = 10**scaled if self.is_logarithmic else scaled
        size, suffix = next((pair for pair in SUFFIXES if abs(value) >= pair[0]), (1, ""))
        return f"{value / size:.3g}{suffix}"


def _parts(panel: Panel) -> Iterator[str]:
    """Yield the elements of a panel, whose area begins at the origin."""
    across = _Axis.of([x for line in panel.lines.values() for x, _ in line], panel.is_logarithmic)
    up = _Axis.of([y for line in panel.lines.values() for _, y in line], panel.is_logarithmic)
    for step in range(INTERVALS + 1):
        fraction = step / INTERVALS
        x, y = fraction * WIDTH, (1 - fraction) * HEIGHT
        yield f'<line x1="0" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
        yield f'<text x="-6" y="{y + 4:.1f}" text-anchor="end">{up.label(fraction)}</text>'
        yield f'<text x="{x:.1f}" y="{HEIGHT + 18}" text-anchor="middle">{across.label(fraction)}</text>'
    for index, (name, line) in enumerate(panel.lines.items()):
        colour = COLOURS[index % len(COLOURS)]
        points = " ".join(f"{across.fraction(x) * WIDTH:.1f},{(1 - up.fraction(y)) * HEIGHT:.1f}" for x, y in line)
        yield f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'
        if len(panel.lines) > 1:
            yield f'<text x="12" y="{16 + 18 * index}" fill="{colour}">{escape(name)}</text>'
    yield f'<text x="{WIDTH}" y="{HEIGHT + 36}" text-anchor="end">{escape(panel.x_name)}</text>'
    yield f'<text x="0" y="-8">{escape(panel.y_name)}</text>'
