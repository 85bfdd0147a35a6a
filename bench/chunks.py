"""``make bench ARGS=chunks``: KIP-283's sweep of the chunk size of down-conversion, and its control without chunks.

For each chunk size a broker of its own serves one topic of 16 kB batches to the load driver of ``../shared/bench``:
1 kB and 100 B records, uncompressed and lz4, as Fetch v1 (format v0) and Fetch v3 (format v1). Each line is the median
over the rounds of MB/s on the wire and of the broker's CPU seconds per GB, with the largest resident memory of all
rounds. "No chunks" converts each partition's answer in one piece: the control, whose memory grows with the Fetch.

The rounds of the chunk sizes are interleaved, so that a disturbance of the machine does not concern one size alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench.one_broker import OneBroker, one_broker
from bench.side_by_side import SHARED, build_driver
from gregor.command_line.line_plot import Panel, write_line_plot

CHUNK_BYTES = [1 << exponent for exponent in range(12, 21)]
NO_CHUNKS_BYTES = 64 << 20
"""A chunk that holds all that one Fetch of the driver asks of a partition."""
FETCH_BYTES = 50 << 20
PLOT = Path(__file__).resolve().parent.parent / "docs" / "images" / "chunk-sizes.svg"
MIB = 1 << 20


@dataclass(frozen=True)
class Case:
    """A topic and the version of Fetch that reads it."""

    record_bytes: int
    codec: str
    version: int

    @property
    def topic(self) -> str:
        """Return the name of the case's topic."""
        return f"records-{self.record_bytes}-{self.codec}"

    def __str__(self) -> str:
        return f"{self.record_bytes:,} B {self.codec} v{self.version}"


@dataclass
class Figures:
    """The figures of one case with one chunk size, an entry for each round."""

    megabytes_per_s: list[float] = field(default_factory=list)
    cpu_s_per_gb: list[float] = field(default_factory=list)
    peak_rss_mib: float = 0.0


CASES = [Case(size, codec, version) for size in (1000, 100) for codec in ("none", "lz4") for version in (1, 3)]


def drive(driver: Path, broker: OneBroker, command: str, *options: str) -> dict[str, float]:
    """Run one command of the load driver against a broker; return the figures that it prints.

    Raises RuntimeError if the driver reports an error.
    """
    words = [str(driver), command, "--bootstrap", broker.bootstrap, "--pid", str(broker.pid), *options]
    printed = subprocess.run(words, capture_output=True, text=True, check=False).stdout
    figures: dict[str, float] = json.loads(printed.strip().splitlines()[-1])
    if "error" in figures or figures.get("errors"):
        raise RuntimeError(f"{' '.join(words)}: {printed}")
    return figures


def fill(driver: Path, broker: OneBroker, megabytes: int) -> None:
    """Fill the topics of all cases, each with `megabytes` of records before compression."""
    for case in {case.topic: case for case in CASES}.values():
        count = megabytes * 1_000_000 // case.record_bytes
        topic = ["--topic", case.topic, "--create", "--partitions", "1", "--payload", "text"]
        size = ["--records", str(count), "--size", str(case.record_bytes), "--codec", case.codec]
        drive(driver, broker, "fill", *topic, *size, "--batch-bytes", "16384")


def measure(driver: Path, broker: OneBroker, case: Case, figures: Figures) -> None:
    """Read the topic of a case once and add a round to its figures."""
    limits = ["--max-bytes", str(FETCH_BYTES), "--partition-max-bytes", str(FETCH_BYTES)]
    read = drive(
        driver, broker, "fetch", "--topic", case.topic, "--version", str(case.version), "--loops", "1", *limits
    )
    figures.megabytes_per_s.append(read["mb_s"])
    figures.cpu_s_per_gb.append(read["broker_cpu_s_per_gb"])
    figures.peak_rss_mib = max(figures.peak_rss_mib, read["rss_peak_mib"])


def sweep(driver: Path, sizes: list[int], rounds: int, megabytes: int) -> dict[int, dict[Case, Figures]]:
    """Measure all cases with each chunk size, round by round."""
    found = {size: {case: Figures() for case in CASES} for size in sizes}
    with ExitStack() as stack:
        brokers = {
            size: stack.enter_context(one_broker(f"gregor.message.downconversion.chunk.bytes={size}")) for size in sizes
        }
        for broker in brokers.values():
            fill(driver, broker, megabytes)
        for number in range(rounds + 1):
            print(f"round {number} of {rounds}" if number else "warming", file=sys.stderr)
            for size, broker in brokers.items():
                for case in CASES:
                    measure(driver, broker, case, found[size][case] if number else Figures())
    return found


def lines(found: dict[int, dict[Case, Figures]]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield f"{'case':22}{'chunk':>10}{'MB/s':>10}{'CPU s/GB':>10}{'peak RSS MiB':>14}"
    for case in CASES:
        for size, by_case in found.items():
            figures = by_case[case]
            speed, cost = statistics.median(figures.megabytes_per_s), statistics.median(figures.cpu_s_per_gb)
            yield f"{case!s:22}{name_of(size):>10}{speed:10,.0f}{cost:10.2f}{figures.peak_rss_mib:14.0f}"


def name_of(chunk_bytes: int) -> str:
    """Return a chunk size in words."""
    if chunk_bytes == NO_CHUNKS_BYTES:
        return "no chunks"
    return f"{chunk_bytes // 1024} kB" if chunk_bytes < MIB else f"{chunk_bytes // MIB} MB"


def draw(found: dict[int, dict[Case, Figures]], path: Path) -> None:
    """Draw the CPU cost of each case by chunk size; the picture of docs/measurements.md."""
    chunked = {size: by_case for size, by_case in found.items() if size != NO_CHUNKS_BYTES}
    plotted = {
        str(case): [(size, statistics.median(by_case[case].cpu_s_per_gb)) for size, by_case in chunked.items()]
        for case in CASES
        if case.version == 3
    }
    title = "Lazy down-conversion by chunk size (Fetch v3)"
    write_line_plot(path, title, [Panel("chunk in bytes", "CPU s per GB", plotted, is_logarithmic=True)])


def main(arguments: list[str]) -> int:
    """Run the sweep, print its table, and draw the plot if requested; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench chunks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=200, help="records of each topic, before compression")
    parser.add_argument("--plot", type=Path, nargs="?", const=PLOT, help="draw the costs (default: %(const)s)")
    options = parser.parse_args(arguments)
    if not (SHARED / "bench").is_dir():
        print("skipped: the load driver is in ../shared, which is not here", file=sys.stderr)
        return 0
    found = sweep(build_driver(), [*CHUNK_BYTES, NO_CHUNKS_BYTES], options.rounds, options.megabytes)
    print(*lines(found), sep="\n")
    if options.plot:
        draw(found, options.plot)
    return 0
