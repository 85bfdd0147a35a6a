"""Plots of one series of values over time, as SVG inside a page: numbers only, no text of a client.

Not drawn by `line_plot`, whose files have axes and fixed colours: these stretch with the page and have its style sheet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from markupsafe import Markup, escape

WIDTH, HEIGHT = 320, 96
TOP = 14
"""Space for the label of the scale."""
FEWEST_VALUES = 60
"""Values that fill the width; fewer begin further to the right."""
LEAST_SCALE = 1.0
DECIMAL, BINARY = 1000, 1024
NICE_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


def plot(name: str, values: Sequence[float], unit: Callable[[float], str], *, base: int = DECIMAL) -> Markup:
    """Return a plot of values, the oldest first, the newest at the right; the scale is round in powers of ``base``."""
    scale = nice_ceiling(max(values, default=0.0), base)
    step = WIDTH / (max(len(values), FEWEST_VALUES) - 1)
    left = WIDTH - step * (len(values) - 1)
    points = [
        f"{left + step * index:.1f},{HEIGHT - (HEIGHT - TOP) * min(value / scale, 1):.1f}"
        for index, value in enumerate(values)
    ]
    area = f"{left:.1f},{HEIGHT} {' '.join(points)} {WIDTH},{HEIGHT}" if points else ""
    now = unit(values[-1]) if values else "no value yet"
    label = f"{name}: now {now}, at most {unit(max(values, default=0.0))} in the last minutes"
    middle = TOP + (HEIGHT - TOP) / 2
    return Markup(
        '<svg class="plot" viewBox="0 0 {w} {h}" preserveAspectRatio="none" role="img" aria-label="{label}">'
        '<line class="grid" x1="0" x2="{w}" y1="{top}" y2="{top}"/>'
        '<line class="grid" x1="0" x2="{w}" y1="{middle}" y2="{middle}"/>'
        '<polygon class="area" points="{area}"/><polyline class="line" points="{points}"/></svg>'
        '<span class="scale">{scale}</span>'
    ).format(
        w=WIDTH,
        h=HEIGHT,
        label=escape(label),
        top=TOP,
        middle=middle,
        area=area,
        points=" ".join(points),
        scale=escape(unit(scale)),
    )


def nice_ceiling(value: float, base: int = DECIMAL) -> float:
    """Return a round number that is not below ``value``, for the top of a scale."""
    power = LEAST_SCALE
    while power * base <= value:
        power *= base
    steps = (*NICE_STEPS, base)
    return next(step * power for step in steps if step * power >= value)
