"""The measurement of all curves: the table, the JSON file and the plots.

    make bench ARGS="curves --kinds topics,connections"
    make bench ARGS="curves --largest 100000 --only gregor --kinds topics"

For each kind of work each broker starts empty and grows from size to size. CPU is the broker's own, user and system
time for one request; the client's is not counted. Memory is the resident memory of the process.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bench.broker_pair import BenchBroker, broker_pair
from bench.curves.groups import Groups, Members
from bench.curves.load import Connections, LogSize, SlowConsumers, Topics
from bench.curves.work import Figures, Work
from gregor.command_line.line_plot import Panel, write_line_plot

KINDS: Mapping[str, type[Work]] = {
    "topics": Topics,
    "connections": Connections,
    "slow": SlowConsumers,
    "members": Members,
    "groups": Groups,
    "log": LogSize,
}
IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
Curve = Mapping[int, Figures]
"""The figures of a broker by size."""


def sizes_of(kind: type[Work], largest: int | None) -> Sequence[int]:
    """Return the sizes of a kind of work up to `largest`, which is added if it is beyond them."""
    if largest is None:
        return kind.SIZES
    return sorted({size for size in kind.SIZES if size <= largest} | {largest})


def curve(kind: type[Work], broker: BenchBroker, sizes: Sequence[int]) -> Curve:
    """Measure a kind of work with a broker that is empty; an error ends the curve at the size before."""
    found: dict[int, Figures] = {}
    work = kind()
    broker.start()
    try:
        for size in sizes:
            print(f"{broker.name}: {size:,} {kind.NAME}", file=sys.stderr, flush=True)
            work.grow(broker, size)
            found[size] = work.measure(broker, size)
    except (OSError, RuntimeError) as fault:
        print(f"{broker.name} ends before {size:,} {kind.NAME}: {fault}", file=sys.stderr)
    finally:
        work.end()
        broker.stop()
    return found


def lines(kind: type[Work], curves: Mapping[str, Curve]) -> Iterator[str]:
    """Yield the lines of a table in Markdown: a row for each size, a pair of columns for each figure."""
    names = list(next(figures for found in curves.values() for figures in found.values()))
    heads = [f"{name}: {broker}" for name in names for broker in curves]
    yield f"| {kind.NAME} | {' | '.join(heads)} |"
    yield "| --- " * (len(heads) + 1) + "|"
    for size in sorted({size for found in curves.values() for size in found}):
        cells = [
            f"{found[size][name]:,.{0 if found[size][name] >= 100 else 2}f}" if size in found else ""
            for name in names
            for found in curves.values()
        ]
        yield f"| {size:,} | {' | '.join(cells)} |"


def draw(kind: type[Work], curves: Mapping[str, Curve], path: Path) -> None:
    """Draw a panel for each figure, with a line for each broker."""
    panels: defaultdict[str, dict[str, list[tuple[float, float]]]] = defaultdict(dict)
    for broker, found in curves.items():
        for size, figures in found.items():
            for name, value in figures.items():
                panels[name].setdefault(broker, []).append((size, max(value, 0.001)))
    drawn = [Panel(kind.NAME, name, plotted, is_logarithmic=True) for name, plotted in panels.items()]
    write_line_plot(path, f"Cost by {kind.NAME}", drawn)


def main(arguments: list[str]) -> int:
    """Measure, print and draw the curves; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m bench curves", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kinds", default=",".join(KINDS), help="kinds of work (default: all: %(default)s)")
    parser.add_argument("--largest", type=int, help="largest size of each kind of work")
    parser.add_argument("--only", choices=("gregor", "kafka"), help="measure one broker alone")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--plot", action="store_true", help=f"draw {IMAGES.name}/curve-KIND.svg in docs/")
    options = parser.parse_args(arguments)
    chosen = [name.strip() for name in options.kinds.split(",")]
    unknown = set(chosen) - set(KINDS)
    if unknown:
        parser.error(f"unknown kinds {', '.join(sorted(unknown))}; known: {', '.join(KINDS)}")
    results: dict[str, dict[str, Curve]] = {}
    for name in chosen:
        kind = KINDS[name]
        scratch = Path(tempfile.mkdtemp(prefix="gregor-curves-"))
        try:
            with broker_pair(scratch / "brokers", *kind.SETTINGS, only=options.only) as brokers:
                results[name] = {
                    broker.name: curve(kind, broker, sizes_of(kind, options.largest)) for broker in brokers
                }
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        print("\n".join(lines(kind, results[name])), end="\n\n", flush=True)
        if options.plot:
            draw(kind, results[name], IMAGES / f"curve-{name}.svg")
        if options.json is not None:
            options.json.write_text(json.dumps(results, indent=1))
    return 0
