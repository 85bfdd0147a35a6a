"""The measurements that find the figures of all goals. Brokers take turns, and the first round warms them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench import cluster, compressed
from bench.bench_cluster import gregor_cluster, kafka_cluster
from bench.chunks import drive
from bench.goals.rows import (
    COMPRESSED,
    FETCH,
    GREGOR,
    IDLE,
    IDLE_PARTITIONS,
    INSTALLATION,
    KAFKA,
    SIX_CONNECTIONS,
    START,
    THREE_REPLICAS,
    Rounds,
)
from bench.one_broker import OneBroker, kafka_broker, one_broker
from bench.side_by_side import both_brokers, build_driver, versus

CASES = {
    ("convert", "fetch v3"): FETCH.format(3),
    ("convert", "fetch v1"): FETCH.format(1),
    ("convert", "fetch v11"): FETCH.format(11),
    ("produce", "none acks=1"): "produce, 16 kB batches",
    ("produce", "lz4 acks=1"): "produce, lz4",
    ("small", "1 conns inflight 1"): "one record a request, 1 connection",
    ("small", "8 conns inflight 1"): "the same, 8 connections",
    ("small", "4 conns inflight 16"): "the same, 4 connections, 16 in flight",
    ("e2e", "fetch v11, 1000/s"): "a record to a v11 consumer, 1,000/s",
    ("e2e", "fetch v3, 1000/s"): "a record to a v3 consumer, 1,000/s",
    ("slow", "50 slow consumers v3"): "50 slow v3 consumers",
    ("startup", "restart"): START,
}
"""The work by test and case of ../shared/bench/seedbench."""
FIGURES = {
    "mb_s": "MB/s",
    "payload_mb_s": "MB/s",
    "requests_s": "requests/s",
    "broker_cpu_s_per_gb": "CPU s/GB",
    "broker_cpu_us_per_request": "CPU us",
    "ttfb_p50_ms": "first byte, p50 ms",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "slowest_first_byte_ms": "slowest first byte, ms",
    "rss_peak_mib": "peak RSS, MiB",
    "seconds": "exec to first answer, s",
    "rss_idle_mib": "idle RSS, MiB",
}
"""The figure by its name in the driver's output."""
FETCH_LIMITS = ("--max-bytes", str(50 << 20), "--partition-max-bytes", str(1 << 20))
COMPRESSED_BYTES = 1000
COMPRESSED_MEGABYTES = 60
SMALL_SECONDS = 2.0
SETTLING_S = 20.0
IDLE_S = 60.0
INSTALLATION_LIMIT_S = 600.0


@dataclass(frozen=True)
class Extent:
    """A choice of the rounds that count and of the brokers: Gregor alone, or Kafka too."""

    rounds: int
    has_kafka: bool = True


def add(rounds: Rounds, work: str, figure: str, broker: str, value: float) -> None:
    """Add the value of one round."""
    rounds.setdefault((work, figure), {}).setdefault(broker, []).append(value)


def add_lines(rounds: Rounds, lines: Sequence[str]) -> None:
    """Add the figures of ``versus --out``, a JSON object a line; those of warming rounds do not count."""
    for line in lines:
        figures = json.loads(line)
        work = CASES.get((figures["test"], figures["case"]))
        if work is None or figures["round"] < 0 or figures.get("error"):
            continue
        for name, figure in FIGURES.items():
            # A fetch has both rates: the goal is that of all bytes read, which "payload_mb_s" counts without overhead.
            is_second_rate = name == "payload_mb_s" and "mb_s" in figures
            if isinstance(figures.get(name), int | float) and not is_second_rate:
                add(rounds, work, figure, figures["label"], figures[name])


def measure_one_broker(test: str, rounds: Rounds, extent: Extent) -> None:
    """Measure one test of ``../shared/bench/seedbench``, or Fetch v11 over six connections.

    Each test has brokers of its own, whose warming round precedes those that count: "startup" would restart the JVM
    before each round of the other tests, and a topic that is not read for half a minute may have left the page cache.
    """
    only = None if extent.has_kafka else "gregor"
    with tempfile.TemporaryDirectory(prefix="gregor-bench-") as directory, both_brokers(only) as brokers:
        if test == "connections":
            _measure_connections(rounds, [_parsed(broker) for broker in brokers], extent)
            return
        out = Path(directory) / "figures"
        versus(brokers, ["--tests", test, "--rounds", str(extent.rounds), "--out", str(out)], stdout=sys.stderr)
        add_lines(rounds, out.read_text().splitlines())


def _parsed(text: str) -> tuple[str, OneBroker]:
    """Return a broker's name and process from the text that `versus` takes."""
    name, _, rest = text.partition("=")
    bootstrap, _, pid_file = rest.partition(",")
    return name, OneBroker(bootstrap, int(Path(pid_file).read_text()))


def _measure_connections(rounds: Rounds, brokers: Sequence[tuple[str, OneBroker]], extent: Extent) -> None:
    driver = build_driver()
    topic = ("--topic", "six-connections")
    for _, broker in brokers:
        drive(driver, broker, "create", *topic, "--partitions", "12")
    # Kafka answers a request for a new partition with an error until the partition has its leader.
    time.sleep(compressed.LEADERS_S)
    for _, broker in brokers:
        drive(driver, broker, "fill", *topic, "--records", "300000", "--size", "1000", "--batch-bytes", "16384")
    for number in range(extent.rounds + 1):
        for name, broker in brokers:
            words = ("--version", "11", "--conns", "6", "--loops", "10", *FETCH_LIMITS)
            figures = drive(driver, broker, "fetch", *topic, *words)
            if number:
                add(rounds, SIX_CONNECTIONS, "MB/s", name, figures["mb_s"])
                add(rounds, SIX_CONNECTIONS, "CPU s/GB", name, figures["broker_cpu_s_per_gb"])


def measure_compressed(rounds: Rounds, extent: Extent) -> None:
    """Measure Fetch v1 and v3 of compressed topics."""
    driver = build_driver()
    with ExitStack() as running:
        brokers = {GREGOR: running.enter_context(one_broker())}
        if extent.has_kafka:
            brokers[KAFKA] = running.enter_context(kafka_broker())
        for broker in brokers.values():
            compressed.fill(driver, broker, COMPRESSED_MEGABYTES, (COMPRESSED_BYTES,))
        found = compressed.measure(driver, brokers, extent.rounds, (COMPRESSED_BYTES,))
    for (codec, _, version, name), values in found.items():
        for records_per_s, cpu_us in values:
            work = COMPRESSED.format(version, codec)
            add(rounds, work, "records/s", name, records_per_s)
            add(rounds, work, "CPU us a record", name, cpu_us)


def measure_replicated(rounds: Rounds, extent: Extent) -> None:
    """Measure one record a request, on one connection, in clusters of three brokers with three replicas."""
    (case,) = [case for case in cluster.cases(0, SMALL_SECONDS) if case.name.endswith("1 connection")]
    measurement = cluster.Measurement(build_driver(), 3)
    with ExitStack() as running:
        scratch = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="gregor-bench-")))
        clusters = {GREGOR: running.enter_context(gregor_cluster(3, scratch / "gregor"))}
        if extent.has_kafka:
            clusters[KAFKA] = running.enter_context(kafka_cluster(3))
        for number in range(extent.rounds + 1):
            for one in clusters.values():
                measurement.take(one, case, is_counted=number > 0)
                measurement.end(one, case, None)
        for name, one in clusters.items():
            for figure in ("requests/s", "p50 ms"):
                for value in measurement.values_of(case, figure, one):
                    add(rounds, THREE_REPLICAS, figure, name, value)


def measure_idle(rounds: Rounds, extent: Extent) -> None:
    """Measure the CPU time of three brokers of Gregor without clients."""
    with (
        tempfile.TemporaryDirectory(prefix="gregor-bench-") as scratch,
        gregor_cluster(3, Path(scratch) / "idle") as brokers,
    ):
        brokers.wait_for_brokers()
        for count in IDLE_PARTITIONS:
            if count:
                brokers.create_topic("idle", partitions=count, replicas=3)
            time.sleep(SETTLING_S)
            for _ in range(extent.rounds):
                before = sum(node.cpu_seconds() for node in brokers.nodes)
                time.sleep(IDLE_S)
                used_s = sum(node.cpu_seconds() for node in brokers.nodes) - before
                add(rounds, IDLE.format(count), "CPU s a minute", GREGOR, used_s * 60 / IDLE_S)


def measure_installation(rounds: Rounds, extent: Extent) -> None:
    """Measure ``make run`` in a clone of the last commit, once, until the broker accepts connections."""
    del extent
    checkout = Path(__file__).resolve().parents[2]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = probe.getsockname()
    with tempfile.TemporaryDirectory(prefix="gregor-bench-") as directory:
        clone = Path(directory) / "gregor"
        subprocess.run(["git", "clone", "-q", checkout, clone], check=True)
        settings = f"--override listeners=PLAINTEXT://{address[0]}:{address[1]} --override log.dirs={directory}/logs"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
        begun = time.monotonic()
        process = subprocess.Popen(
            ["make", "run", f"ARGS={settings}"],
            cwd=clone,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            start_new_session=True,
        )
        try:
            _wait_for(address, process)
            add(rounds, INSTALLATION, "s until serving", GREGOR, time.monotonic() - begun)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait()


def _wait_for(address: tuple[str, int], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + INSTALLATION_LIMIT_S
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError), socket.create_connection(address, 1):
            return
        time.sleep(0.05)
    raise RuntimeError(f"make run did not serve within {INSTALLATION_LIMIT_S} s; exit {process.poll()}")


ONE_BROKER = ("convert", "produce", "small", "e2e", "slow", "startup", "connections")
MEASUREMENTS: Mapping[str, Callable[[Rounds, Extent], None]] = {
    **{test: partial(measure_one_broker, test) for test in ONE_BROKER},
    "compressed": measure_compressed,
    "replicated": measure_replicated,
    "idle": measure_idle,
    "install": measure_installation,
}
GROUPS = tuple(MEASUREMENTS)


def measure(groups: Sequence[str], extent: Extent, measured: Callable[[Rounds], None]) -> Rounds:
    """Return the values of the groups, and call ``measured`` with those found so far after each measurement.

    A group that fails is told on stderr, and its values are missing.
    """
    rounds: Rounds = {}
    for name in groups:
        print(f"measuring {name}", file=sys.stderr, flush=True)
        try:
            MEASUREMENTS[name](rounds, extent)
        except (OSError, RuntimeError, subprocess.CalledProcessError) as fault:
            print(f"{name}: {fault}", file=sys.stderr)
        measured(rounds)
    return rounds
