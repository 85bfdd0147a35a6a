"""``python -m bench.cluster``: throughput of clusters of one, two and three brokers, beside Apache Kafka 3.9.1.

    python -m bench.cluster                               one replica: Kafka x 1, Gregor x 1, 2 and 3
    python -m bench.cluster --replicas 3                  three replicas, acks=all: Kafka x 3, Gregor x 3
    python -m bench.cluster --replicas 3 --brokers 3 --without-kafka --cases small

All clusters run at once and take turns, round by round; the first round warms them up and is not counted. The driver
of ../shared/bench has the same number of connections in all for each cluster, spread over the leaders. Medians, lowest
and highest in brackets. CPU and memory are sums over a cluster's processes: the peak of resident memory, and PSS, which
counts once what the processes of one machine share.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.bench_cluster import BenchCluster, gregor_cluster, kafka_cluster
from bench.side_by_side import SHARED, build_driver

PARTITIONS = 12
CONNECTIONS = 6
"""The total number of connections: a multiple of each number of brokers."""
TOPIC = "bench-cluster"
NOT_LED_YET = {"3", "5", "6"}
"""The error codes of a broker that does not have a new topic's metadata yet; the driver retries."""


@dataclass(frozen=True)
class Case:
    """A measurement: arguments of the driver, and the names under which its figures are shown."""

    name: str
    command: str
    arguments: tuple[str, ...]
    figures: tuple[tuple[str, str], ...]
    connections: int = CONNECTIONS
    is_per_leader: bool = True
    """Whether the connections are per leader, rather than in all."""


PRODUCE_FIGURES = (("MB/s", "payload_mb_s"), ("CPU us a record", "broker_cpu_us_per_record"), ("p99 ms", "p99_ms"))
SMALL_FIGURES = (
    ("requests/s", "requests_s"),
    ("CPU us", "broker_cpu_us_per_request"),
    ("p50 ms", "p50_ms"),
    ("p99 ms", "p99_ms"),
)


def cases(records: int, seconds: float) -> list[Case]:
    """Return all cases in the order in which they run; Fetch reads the records of the case before it."""
    batches = ("--batch-bytes", "16384", "--inflight", "5", "--records")
    small = ("--size", "100", "--seconds", str(seconds))
    return [
        Case("one record a request, 1 connection", "produce-small", small, SMALL_FIGURES, 1, False),
        Case("one record a request, 6 connections", "produce-small", small, SMALL_FIGURES, CONNECTIONS, False),
        Case(
            "the same, 16 in flight each",
            "produce-small",
            (*small, "--inflight", "16"),
            SMALL_FIGURES,
            CONNECTIONS,
            False,
        ),
        Case("produce 100 B, 16 kB batches", "fill", (*batches, str(records * 5), "--size", "100"), PRODUCE_FIGURES),
        Case(
            "produce 1 kB, lz4",
            "fill",
            (*batches, str(records), "--size", "1000", "--codec", "lz4", "--payload", "text"),
            PRODUCE_FIGURES,
        ),
        Case("produce 1 kB, 16 kB batches", "fill", (*batches, str(records), "--size", "1000"), PRODUCE_FIGURES),
        Case(
            "fetch v11",
            "fetch",
            # A single pass takes a twentieth of a second, too little to measure.
            ("--version", "11", "--max-bytes", str(50 << 20), "--partition-max-bytes", str(1 << 20), "--loops", "20"),
            (("MB/s", "mb_s"), ("CPU s/GB", "broker_cpu_s_per_gb")),
        ),
    ]


class Measurement:
    """The figures of all rounds by case, figure and cluster."""

    def __init__(self, driver: Path, replicas: int) -> None:
        self._driver = driver
        self._replicas = replicas
        self._values: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    def take(self, cluster: BenchCluster, case: Case, *, is_counted: bool) -> None:
        """Run one case against one cluster."""
        if case.command != "fetch":
            cluster.create_topic(TOPIC, partitions=PARTITIONS, replicas=self._replicas)
        figures = self._drive(cluster, case)
        if is_counted:
            for label, key in case.figures:
                self._values[case.name, label][cluster.name].append(figures[key])
            self._values["memory", "sum of peak RSS, MiB"][cluster.name].append(figures["rss_peak_mib"])
            self._values["memory", "sum of PSS, MiB"][cluster.name].append(cluster.shared_memory_mib())

    def values_of(self, case: Case, figure: str, cluster: BenchCluster) -> list[float]:
        """Return a figure of a case in each round that counts."""
        return self._values[case.name, figure][cluster.name]

    def end(self, cluster: BenchCluster, case: Case, following: Case | None) -> None:
        """Delete the case's records, unless the next case reads them."""
        if following is None or following.command != "fetch":
            cluster.delete_topic(TOPIC)

    def _drive(self, cluster: BenchCluster, case: Case) -> dict[str, Any]:
        connections = case.connections // len(cluster.nodes) if case.is_per_leader else case.connections
        command = [str(self._driver), case.command, "--topic", TOPIC, *case.arguments, "--conns", str(connections)]
        if case.command != "fetch":
            command += ["--acks", "-1" if self._replicas > 1 else "1"]
        command += ["--bootstrap", cluster.bootstrap.partition(",")[0], "--pid", cluster.pids]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1]) if done.stdout else {}
        if done.returncode or figures.get("error") or not set(figures.get("errors", ())) <= NOT_LED_YET:
            raise RuntimeError(f"{cluster.name}, {case.name}: {done.stdout}{done.stderr}")
        print(f"{cluster.name:12} {case.name:38} {done.stdout.strip()}", file=sys.stderr)
        return figures

    def table(self, clusters: list[BenchCluster]) -> str:
        """Return a Markdown table: a line for each figure, a column for each cluster."""
        lines = ["| test | figure | " + " | ".join(cluster.name for cluster in clusters) + " |"]
        lines.append("| --- " * (len(clusters) + 2) + "|")
        # The figures of every case come last.
        for (case, label), by_cluster in sorted(self._values.items(), key=lambda item: item[0][0] == "memory"):
            cells = [_summary(by_cluster[cluster.name]) for cluster in clusters]
            lines.append(f"| {case} | {label} | " + " | ".join(cells) + " |")
        return "\n".join(lines)


def _summary(values: list[float]) -> str:
    return f"{_short(median(values))} ({_short(min(values))}-{_short(max(values))})" if values else ""


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def main() -> int:
    """Measure the cases of the command line and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.cluster", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--brokers", help="Gregor's numbers of brokers (default: 1,2,3, as far as replicas fit)")
    parser.add_argument("--replicas", type=int, default=1, help="of each partition; acks=all if more than one")
    parser.add_argument("--rounds", type=int, default=3, help="that count (default: %(default)s)")
    parser.add_argument("--records", type=int, default=150_000, help="of 1 kB in a case (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=2.0, help="for small requests (default: %(default)s)")
    parser.add_argument("--cases", default="", help="only those whose name has this in it")
    parser.add_argument("--without-kafka", action="store_true")
    options = parser.parse_args()
    if not (SHARED / "bench").is_dir():
        print("skipped: the load driver and Apache Kafka 3.9.1 are in ../shared, which is not here", file=sys.stderr)
        return 0
    counts = [int(count) for count in (options.brokers or "1,2,3").split(",") if int(count) >= options.replicas]
    chosen = [case for case in cases(options.records, options.seconds) if options.cases in case.name]
    measurement = Measurement(build_driver(), options.replicas)
    with ExitStack() as running:
        scratch = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="gregor-bench-")))
        clusters = []
        if not options.without_kafka:
            clusters.append(running.enter_context(kafka_cluster(options.replicas)))
        clusters += [running.enter_context(gregor_cluster(count, scratch / str(count))) for count in counts]
        for round_number in range(options.rounds + 1):
            for cluster in clusters if round_number % 2 else clusters[::-1]:
                for case, following in zip(chosen, [*chosen[1:], None], strict=True):
                    measurement.take(cluster, case, is_counted=round_number > 0)
                    measurement.end(cluster, case, following)
    print(measurement.table(clusters))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
