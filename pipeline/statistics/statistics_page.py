"""The statistics of topics as one self-contained HTML page: the table, and interactive plots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from ..filesystems.files import open_output
from ..filesystems.locations import Location
from .topic_statistics import TopicStatistics

STYLE = """body{font-family:sans-serif;margin:2em}table{border-collapse:collapse}
td,th{padding:.3em .8em;text-align:right;border-bottom:1px solid #ddd}td:first-child,th:first-child{text-align:left}"""

PLOT_HEIGHT = 380
LATENCY_POINTS = [step / 100 for step in range(100)] + [0.999]


def write_page(
    path: Location, found: TopicStatistics, columns: Sequence[str], rows: Sequence[Sequence[object]]
) -> None:
    """Write the page; the script of its plots is part of it, about four megabytes. Raises OSError."""
    plots = _plots(found)
    figure = make_subplots(rows=len(plots), cols=1, subplot_titles=[title for title, _, _, _ in plots])
    for row, (_, x_name, y_name, lines) in enumerate(plots, start=1):
        for name, (xs, ys, is_line) in lines.items():
            trace = go.Scatter(x=xs, y=ys, name=name) if is_line else go.Bar(x=xs, y=ys, name=name)
            figure.add_trace(trace, row=row, col=1)
        figure.update_xaxes(title_text=x_name, row=row, col=1)
        figure.update_yaxes(title_text=y_name, row=row, col=1)
    figure.update_layout(height=PLOT_HEIGHT * len(plots), template="plotly_white", barmode="group")
    plot = figure.to_html(full_html=False, include_plotlyjs=True)
    page = (
        f"<!doctype html><html><head><meta charset='utf-8'><title>Topics</title><style>{STYLE}</style></head><body>"
        f"<h1>Topics</h1>{_table(columns, rows)}{plot}</body></html>\n"
    )
    output = open_output(path)
    output.write(page.encode())
    output.close()


Line = tuple[Sequence[object], Sequence[float], bool]


def _plots(found: TopicStatistics) -> list[tuple[str, str, str, Mapping[str, Line]]]:
    """Return the title, the names of the axes, and the named lines or bars of each plot."""
    names = {place: f"{place[0]}-{place[1]}" for place in sorted(found.batches)}
    sums = found.batches
    plots: list[tuple[str, str, str, Mapping[str, Line]]] = [
        (
            "Bytes by partition",
            "",
            "bytes",
            {"bytes": (list(names.values()), [sums[p].size_bytes for p in names], False)},
        ),
        ("Batch sizes", "bytes", "batches", {name: _histogram(sums[p].batch_sizes) for p, name in names.items()}),
        (
            "Records a batch",
            "records",
            "batches",
            {name: _histogram(sums[p].batch_records) for p, name in names.items()},
        ),
    ]
    if found.compression:
        replays = {names[place]: each for place, each in sorted(found.compression.items()) if each.uncompressed_bytes}
        ratios = [each.stored_bytes / each.uncompressed_bytes for each in replays.values()]
        splits = [each.splits / each.batches for each in replays.values()]
        bars = {"ratio": (list(replays), ratios, False), "share of batches split": (list(replays), splits, False)}
        plots.append(("Compression, and what KIP-126's estimator would have split", "", "", bars))
    if found.latencies:
        lines: dict[str, Line] = {}
        for place, counted in sorted(found.latencies.items()):
            values = [counted.percentile(fraction) or 0.0 for fraction in LATENCY_POINTS]
            lines[names[place]] = ([100 * fraction for fraction in LATENCY_POINTS], values, True)
        plots.append(("Latency", "percentile", "ms", lines))
    return plots


def _histogram(counts: Counter[int]) -> Line:
    powers = range(min(counts, default=0), max(counts, default=0) + 1)
    return [f"{2**power:,}+" for power in powers], [counts[power] for power in powers], False


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    def line(cells: Sequence[object], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{'' if c is None else escape(str(c))}</{tag}>" for c in cells) + "</tr>"

    return f"<table>{line(columns, 'th')}{''.join(line(row, 'td') for row in rows)}</table>"
