"""Topics to tables and back, in batch queries and streams: `kafka_raw` beside Spark's own connector, turn by turn.

    python -m bench spark [--rounds 3] [--cases 1000000x100,300000x1000] [--partitions 1,8] [--jobs batch-in,latency]
                          [--ways "connector,kafka_raw"] [--table delta] [--broker gregor] [--json FILE]

One broker, Gregor's or with `--broker kafka` Apache Kafka 3.9.1, and a Spark of its own for each way, local[2]. The
topics have uncompressed batches of 16 kB. Every way does each job once to warm up, in the first case, then all take
turns. All write and read the same kind of table by Spark's own writer of it.

    batch-in, stream-in     the connector's seven columns into a new table; a stream with Trigger.AvailableNow
    batch-out, stream-out   key, value, partition and timestamp of one table into an empty topic. `kafka_raw` keeps
                            timestamps and is exactly once by default; the connector does neither
    latency                 a stream without a trigger, while a producer sends 1,000 records of 100 B in a second: the
                            time from the record's timestamp to the commit of the table's version that has it

CPU seconds are those of the driver (Python), the JVM, Python's workers, and the broker. Memory is the peak of Spark's
processes: the JVM's resident memory, and the proportional one of the others. Where the connector's jars have to be:
`pipeline.session.connector_jars`; without them the connector is left out.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median

import pyspark
import trio

from bench.clients import spread
from bench.one_broker import PEER, OneBroker, kafka_broker, one_broker
from bench.repeated_topic import RepeatedTopic, empty_topic, fill, made_batches
from bench.spark_latency import RATE, measure_latency
from bench.spark_process import SparkProcess, spark_process
from bench.spark_worker import DELTA, WAYS
from gregor.client import Admin
from gregor.client.wire.offset_lookup import LATEST
from gregor.pipeline.session import connector_jars
from gregor.protocol.records.compression import Codec

REPETITIVE = 0.936
"""The share of repetitive text in the measurements of the goals: 64 of 1,000 bytes do not repeat."""
JOBS = ("batch-in", "stream-in", "batch-out", "stream-out", "latency")
COPIED = "copied"

Figures = dict[str, float]
Results = dict[str, list[Figures]]


class Tables:
    """The measurements with one broker: each yields the rounds of every way."""

    def __init__(self, broker: OneBroker, ways: dict[str, SparkProcess], scratch: Path, rounds: int) -> None:
        self._broker = broker
        self._ways = ways
        self._scratch = scratch
        self._rounds = rounds
        self._warm: set[tuple[str, str]] = set()

    def measure(self, job: str, topic: RepeatedTopic, partitions: int, table: Path) -> Results:
        """Do a job in turns; `table` has the topic's rows."""
        results: defaultdict[str, list[Figures]] = defaultdict(list)
        ways = [way for way in self._ways if WAYS[way].sink is not None or job == "batch-in"]
        for turn in range(self._rounds + 1):
            # Another way begins each time, so that none always follows the same one.
            for way in ways[turn % len(ways) :] + ways[: turn % len(ways)]:
                if turn or (way, job) not in self._warm:
                    is_in = job.endswith("-in")
                    figures = self._read(way, job, topic) if is_in else self._write(way, job, topic, partitions, table)
                    print(f"# {topic.name} {job} {way}: {figures}", file=sys.stderr, flush=True)
                    if turn:
                        results[way].append(figures)
                self._warm.add((way, job))
        return {way: results[way] for way in ways}

    def make_table(self, topic: RepeatedTopic, table: Path) -> None:
        """Write the topic's rows to the table that `measure` reads."""
        way = "kafka_raw" if "kafka_raw" in self._ways else next(iter(self._ways))
        self._ways[way].ask(f"batch-in {topic.name} {table}")

    def _read(self, way: str, job: str, topic: RepeatedTopic) -> Figures:
        target = self._scratch / "read"
        shutil.rmtree(target, ignore_errors=True)
        figures = self._ways[way].measured(f"{job} {topic.name} {target}", [self._broker])
        rows = self._ways[way].ask(f"count {topic.name} {target}")["rows"]
        if rows != topic.records:
            raise RuntimeError(f"{rows} rows of {topic.records} in {topic.name} by {way}")
        return {"records": topic.records, **figures}

    def _write(self, way: str, job: str, topic: RepeatedTopic, partitions: int, table: Path) -> Figures:
        shutil.rmtree(f"{table}-to-{COPIED}", ignore_errors=True)
        trio.run(partial(empty_topic, self._broker.bootstrap, COPIED, partitions))
        figures = self._ways[way].measured(f"{job} {COPIED} {table}", [self._broker])
        offsets = trio.run(count_offsets, self._broker.bootstrap, COPIED, partitions)
        if offsets < topic.records:
            raise RuntimeError(f"{offsets} offsets for {topic.records} rows of {table} by {way}")
        return {"records": topic.records, **figures}

    def latency(self, seconds: float, partitions: int) -> Results:
        """Measure the latency of records in turns."""
        results: defaultdict[str, list[Figures]] = defaultdict(list)
        ways = [way for way in self._ways if WAYS[way].source != "kafka_log"]
        for turn in range(self._rounds):
            for way in ways[turn % len(ways) :] + ways[: turn % len(ways)]:
                table = self._scratch / f"latency-{turn}-{way.replace(' ', '-')}-{partitions}"
                figures = measure_latency(self._ways[way], self._broker, table, partitions, seconds)
                print(f"# latency {way}: {figures}", file=sys.stderr, flush=True)
                results[way].append(figures)
        return {way: results[way] for way in ways}


async def count_offsets(bootstrap: str, topic: str, partitions: int) -> int:
    """Return the number of offsets in the topic: records, and the markers of transactions."""
    async with Admin(bootstrap) as admin:
        ends = await admin.list_offsets({(topic, partition): LATEST for partition in range(partitions)})
    return sum(end.offset for end in ends.values() if end is not None)


def main(words: Sequence[str] | None = None) -> int:
    """Run all jobs and print the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m bench spark", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cases", default="1000000x100,300000x1000", help="records x bytes of a value")
    parser.add_argument("--partitions", default="1,8")
    parser.add_argument("--jobs", default=",".join(JOBS))
    parser.add_argument("--ways", default="connector,kafka_raw", help=f"of {'; '.join(WAYS)}")
    parser.add_argument("--table", default=DELTA, choices=(DELTA, "parquet"))
    parser.add_argument("--broker", default="gregor", choices=("gregor", "kafka"))
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--latency-seconds", type=float, default=10.0, help="of one round of latency")
    parser.add_argument("--json", type=Path, help="a file for all figures of all rounds")
    arguments = parser.parse_args(words)
    ways = arguments.ways.split(",")
    jobs = arguments.jobs.split(",")
    if not set(ways) <= set(WAYS) or not set(jobs) <= set(JOBS):
        parser.error(f"ways are {', '.join(WAYS)}; jobs are {', '.join(JOBS)}")
    if "latency" in jobs and arguments.table != DELTA:
        parser.error("latency needs --table delta, whose log has the times")
    if not connector_jars(pyspark.__version__) and any(way.startswith("connector") for way in ways):
        print("without the connector: its jars are missing; ../shared/spark/spark-smoke fetches them", file=sys.stderr)
        ways = [way for way in ways if not way.startswith("connector")]
    if arguments.broker == "kafka" and not PEER.exists():
        print("skipped: Apache Kafka 3.9.1 is in ../shared, which is not here", file=sys.stderr)
        return 0
    measured = _measured(arguments, ways, jobs)
    if arguments.json:
        arguments.json.write_text(json.dumps(measured, indent=1))
    return 0


def _measured(arguments: argparse.Namespace, ways: list[str], jobs: list[str]) -> list[dict[str, object]]:
    measured: list[dict[str, object]] = []
    with ExitStack() as stack:
        broker = stack.enter_context(one_broker() if arguments.broker == "gregor" else kafka_broker())
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gregor-bench-")))
        place = (broker.bootstrap, str(broker.log_directory), arguments.table, str(arguments.cores))
        sparks = {way: stack.enter_context(spark_process("bench.spark_worker", way, *place)) for way in ways}
        tables = Tables(broker, sparks, scratch, arguments.rounds)
        table_jobs = [job for job in jobs if job != "latency"]
        if table_jobs:
            print(f"| job | records | partitions | {COLUMNS} |\n|{' --- |' * 11}", flush=True)
        for partitions in map(int, arguments.partitions.split(",")):
            for case in arguments.cases.split(",") if table_jobs else ():
                records, value_bytes = map(int, case.split("x"))
                batches = made_batches(value_bytes, Codec.NONE, repetitive=REPETITIVE)
                name = f"{case}-{partitions}"
                topic = trio.run(partial(fill, broker.bootstrap, name, partitions, batches, records=records))
                tables.make_table(topic, scratch / name)
                for job in table_jobs:
                    results = tables.measure(job, topic, partitions, scratch / name)
                    _print_rows(f"{job} | {topic.records:,} x {value_bytes:,} B | {partitions}", results)
                    measured += _entries(results, job=job, value_bytes=value_bytes, partitions=partitions)
                shutil.rmtree(scratch / name)
        if "latency" in jobs:
            print(f"\n| partitions | {LATENCY_COLUMNS} |\n|{' --- |' * 7}", flush=True)
            for partitions in map(int, arguments.partitions.split(",")):
                results = tables.latency(arguments.latency_seconds, partitions)
                _print_latencies(str(partitions), results)
                measured += _entries(results, job="latency", value_bytes=100, partitions=partitions, rate=RATE)
    return measured


def _entries(results: Results, **what: object) -> list[dict[str, object]]:
    return [{**what, "way": way, "rounds": rounds} for way, rounds in results.items()]


COLUMNS = "by | rows/s | ratio | CPU s: JVM | Python | broker | all, ratio | peak MiB: all (JVM, workers)"
LATENCY_COLUMNS = "by | s to the table: p50 | p99 | CPU of Spark, s each s | broker | versions each s"


def _python_cpu(figures: Figures) -> float:
    return figures["driver_cpu"] + figures["workers_cpu"]


def _all_cpu(figures: Figures) -> float:
    return figures["spark_cpu"] + figures["broker_cpu"]


def _print_rows(head: str, results: Results) -> None:
    first = next(iter(results.values()))
    first_rate = median(figures["records"] / figures["seconds"] for figures in first)
    first_cpu = median(map(_all_cpu, first))
    for way, rounds in results.items():
        rates = [figures["records"] / figures["seconds"] for figures in rounds]
        print(
            f"| {head} | {way} | {spread(rates, ',.0f')} | {median(rates) / first_rate:.2f} "
            f"| {median(figures['jvm_cpu'] for figures in rounds):.2f} | {median(map(_python_cpu, rounds)):.2f} "
            f"| {median(figures['broker_cpu'] for figures in rounds):.2f} "
            f"| {median(map(_all_cpu, rounds)) / first_cpu:.2f} "
            f"| {median(figures['mib'] for figures in rounds):,.0f} "
            f"({median(figures['jvm_mib'] for figures in rounds):,.0f}, "
            f"{median(figures['workers_mib'] for figures in rounds):,.0f}) |",
            flush=True,
        )


def _print_latencies(head: str, results: Results) -> None:
    for way, rounds in results.items():
        print(
            f"| {head} | {way} | {spread([figures['p50_s'] for figures in rounds], '.2f')} "
            f"| {spread([figures['p99_s'] for figures in rounds], '.2f')} "
            f"| {spread([figures['spark_cpu'] / figures['wall_seconds'] for figures in rounds], '.2f')} "
            f"| {median(figures['broker_cpu'] / figures['wall_seconds'] for figures in rounds):.2f} "
            f"| {median(figures['versions'] / figures['wall_seconds'] for figures in rounds):.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    raise SystemExit(main())
