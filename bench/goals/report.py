"""The results as a table in Markdown, as JSON and as a picture."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from statistics import median
from typing import Any

from bench.goals.rows import Result

LEFT, WIDTH, RIGHT = 380, 420, 90
"""Pixels of a row: its name, its bar, its ratio."""
ROW_HEIGHT, TOP = 20, 60
MET, MISSED = "#1a7f37", "#d1242f"
TITLE = "How many times better than Apache Kafka 3.9.1 (left of the line: worse); the black mark is the goal"
STEPS = (0.125, 0.25, 0.5, 1, 2, 4, 8)
WIDEST = 8.0
"""The ratio, and its inverse, at the ends of the bars' axis; the bars of larger ratios end there."""


def number(value: float) -> str:
    """Return a value in three digits, or whole if it is 100 or more."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}" if abs(value) >= 1 else f"{value:.3f}"


def spread(values: Sequence[float]) -> str:
    """Return the median of values, with the lowest and highest; empty text if there are no values."""
    if not values:
        return ""
    text = number(median(values))
    return text if len(values) == 1 else f"{text} ({number(min(values))}-{number(max(values))})"


def lines(results: Sequence[Result]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| work | figure | Kafka 3.9.1 | Gregor | Gregor / Kafka | goal | |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    work = ""
    for result in results:
        goal, measured = result.goal, result.measured
        ratio = f"{measured:.2f}" if measured is not None and goal.is_ratio else ""
        bound = f"{'>=' if goal.wants_more else '<='} {goal.bound:.3g}"
        name, work = goal.work if goal.work != work else "", goal.work
        cells = (name, goal.figure, spread(result.kafka), spread(result.gregor), ratio, bound, result.verdict)
        yield f"| {' | '.join(cells)} |"


def as_json(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Return an object for each result: the goal, the values of each round, and the verdict."""
    return [
        {
            "group": result.goal.group,
            "work": result.goal.work,
            "figure": result.goal.figure,
            "goal": result.goal.bound,
            "is_ratio": result.goal.is_ratio,
            "kafka": list(result.kafka),
            "gregor": list(result.gregor),
            "measured": result.measured,
            "verdict": result.verdict,
        }
        for result in results
    ]


def write(results: Sequence[Result], directory: Path) -> None:
    """Write ``goals.json`` and ``goals.svg`` into a directory, which is created. Raises OSError."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "goals.json").write_text(json.dumps(as_json(results), indent=1) + "\n")
    (directory / "goals.svg").write_text(picture(results))


def picture(results: Sequence[Result]) -> str:
    """Return an SVG image: for each ratio a bar from 1 to how many times better Gregor is, and a mark at the goal."""
    drawn = [result for result in results if result.goal.is_ratio and result.measured is not None]
    height = TOP + ROW_HEIGHT * len(drawn) + 10
    middle = _x(1.0)
    steps = "".join(
        f'<text x="{_x(step):.1f}" y="{TOP - 18}" text-anchor="middle" fill="#666">{step:g}</text>' for step in STEPS
    )
    rows = "".join(part for index, result in enumerate(drawn) for part in _row(result, TOP + index * ROW_HEIGHT))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + RIGHT}" height="{height}" '
        f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>'
        f'<text x="10" y="22" font-size="15">{TITLE}</text>'
        f'<line x1="{middle:.1f}" x2="{middle:.1f}" y1="{TOP - 14}" y2="{height - 6}" stroke="#888"/>'
        f"{steps}{rows}</svg>\n"
    )


def _x(times_better: float) -> float:
    """Return the place of a ratio on the logarithmic axis."""
    bounded = min(max(times_better, 1 / WIDEST), WIDEST)
    return LEFT + WIDTH * (math.log(bounded) / math.log(WIDEST) + 1) / 2


def _row(result: Result, top: int) -> Iterator[str]:
    goal, measured = result.goal, result.measured
    assert measured is not None
    better = measured if goal.wants_more else 1 / max(measured, 1e-9)
    wanted = goal.bound if goal.wants_more else 1 / goal.bound
    low, high = sorted((_x(1.0), _x(better)))
    colour = MET if result.verdict == "met" else MISSED
    yield f'<text x="{LEFT - 8}" y="{top + 13}" text-anchor="end">{escape(goal.work)}: {escape(goal.figure)}</text>'
    yield f'<rect x="{low:.1f}" y="{top + 3}" width="{high - low:.1f}" height="{ROW_HEIGHT - 6}" fill="{colour}"/>'
    yield f'<rect x="{_x(wanted) - 1:.1f}" y="{top}" width="2" height="{ROW_HEIGHT}" fill="black"/>'
    yield f'<text x="{LEFT + WIDTH + 8}" y="{top + 13}">{better:.2f}</text>'
