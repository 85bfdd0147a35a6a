"""The command ``make bench``: measure the goals, print the table, write JSON and the picture."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench.goals import report
from bench.goals.measuring import GROUPS, Extent, measure
from bench.goals.rows import GOALS, Rounds, results
from bench.side_by_side import SHARED


def main(arguments: list[str]) -> int:
    """Measure the goals of the groups that are asked for; return the exit code.

    A missed goal is no error: the code is 0. It is 1 if a figure could not be measured.
    """
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--groups", default=",".join(GROUPS), help="measurements to make (default: all: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds that count (default: %(default)s)")
    parser.add_argument("--without-kafka", action="store_true", help="measure Gregor alone, which leaves ratios out")
    parser.add_argument(
        "--directory",
        type=Path,
        default=Path("bench-results"),
        help="for goals.json and goals.svg (default: %(default)s)",
    )
    options = parser.parse_args(arguments)
    groups = [name.strip() for name in options.groups.split(",")]
    unknown = set(groups) - set(GROUPS)
    if unknown:
        parser.error(f"unknown groups {', '.join(sorted(unknown))}; known: {', '.join(GROUPS)}")
    if not (SHARED / "bench").is_dir():
        print("skipped: the load driver and Apache Kafka 3.9.1 are in ../shared, which is not here", file=sys.stderr)
        return 0
    goals = [goal for goal in GOALS if goal.group in groups]

    def write(rounds: Rounds) -> None:
        # What was measured is there too if the rest is interrupted.
        report.write(results(goals, rounds), options.directory)

    found = results(goals, measure(groups, Extent(options.rounds, not options.without_kafka), write))
    print(*report.lines(found), sep="\n")
    verdicts = [result.verdict for result in found]
    counts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts))
    print(f"\n{len(found)} goals: {counts}; figures and picture: {options.directory}/goals.json, goals.svg")
    return int(not all(result.gregor for result in found))
