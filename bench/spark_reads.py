"""Topics into Parquet with Spark's own connector, with `kafka_raw` and with `kafka_log`, turn by turn.

    python -m bench.spark_reads [--rounds 3] [--cases 1000000x1000,10000000x100] [--ways connector,kafka_raw,kafka_log]

One Gregor broker, topics of three partitions in uncompressed batches of 16 kB; a Spark of its own for each way,
local[2]. Each reads each topic once to warm up, then in turns. All write the connector's seven columns as Spark's
default Parquet. CPU seconds are those of the reading Spark with all of its processes (driver, JVM, Python's workers)
and of the broker; memory is the peak of the Spark's processes together, pages that forks share counted for each. Where
the connector's jars have to be: `pipeline.session.connector_jars`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median

import pyspark
import trio

from bench.clients import spread
from bench.one_broker import OneBroker, one_broker
from bench.repeated_topic import RepeatedTopic, fill, made_batches
from bench.spark_process import SparkProcess, spark_process
from bench.spark_reader import READERS
from gregor.pipeline.session import connector_jars
from gregor.protocol.records.compression import Codec

PARTITIONS = 3
REPETITIVE = 0.936
"""The share of repetitive text in the measurements of the goals: 64 of 1,000 bytes do not repeat."""


def read(spark: SparkProcess, topic: RepeatedTopic, directory: Path, broker: OneBroker) -> dict[str, float]:
    """Read a topic once; see `SparkProcess.measured`. Raises RuntimeError if rows are missing."""
    figures = spark.measured(f"{topic.name} {directory}", [broker])
    if figures["rows"] != topic.records:
        raise RuntimeError(f"{figures['rows']} rows of {topic.records} in {topic.name}")
    return figures


def main() -> int:
    """Run all ways and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cases", default="1000000x1000,10000000x100", help="records x bytes of a value")
    parser.add_argument("--ways", default="connector,kafka_raw,kafka_log", help=f"of {'; '.join(READERS)}")
    parser.add_argument("--cores", type=int, default=2)
    arguments = parser.parse_args()
    ways = [way for way in READERS if way in arguments.ways.split(",")]
    if "connector" in ways and not connector_jars(pyspark.__version__):
        parser.error("the connector's jars are not there: ../shared/spark/spark-smoke fetches them, or leave it out")
    with ExitStack() as stack:
        broker = stack.enter_context(one_broker())
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gregor-bench-")))
        topics = []
        for case in arguments.cases.split(","):
            records, value_bytes = map(int, case.split("x"))
            batches = made_batches(value_bytes, Codec.NONE, repetitive=REPETITIVE)
            topics.append(trio.run(partial(fill, broker.bootstrap, case, PARTITIONS, batches, records=records)))
        place = (broker.bootstrap, str(broker.log_directory), str(arguments.cores))
        readers = {way: stack.enter_context(spark_process("bench.spark_reader", way, *place)) for way in ways}
        for topic in topics:
            results: defaultdict[str, list[dict[str, float]]] = defaultdict(list)
            for turn in range(arguments.rounds + 1):
                for way, reader in readers.items():
                    figures = read(reader, topic, scratch / "rows", broker)
                    print(f"# {topic.name} {way}: {figures}", file=sys.stderr, flush=True)
                    if turn:
                        results[way].append(figures)
            _print_table(topic, results)
    return 0


def _print_table(topic: RepeatedTopic, results: dict[str, list[dict[str, float]]]) -> None:
    print(f"\n{topic.records:,} records, {topic.size_bytes / 1e6:,.0f} MB in {topic.batches:,} batches\n")
    print("| | rows/s | ratio | MB/s | CPU s: Spark | broker | both, ratio | peak MiB |\n|" + " --- |" * 8)
    first = next(iter(results.values()))
    first_rate = median(topic.records / figures["seconds"] for figures in first)
    first_cpu = median(figures["spark_cpu"] + figures["broker_cpu"] for figures in first)
    for way, rounds in results.items():
        rates = [topic.records / figures["seconds"] for figures in rounds]
        seconds = median(figures["seconds"] for figures in rounds)
        both = median(figures["spark_cpu"] + figures["broker_cpu"] for figures in rounds)
        print(
            f"| {way} | {spread(rates, ',.0f')} | {median(rates) / first_rate:.2f} "
            f"| {topic.size_bytes / 1e6 / seconds:,.0f} "
            f"| {median(figures['spark_cpu'] for figures in rounds):.1f} "
            f"| {median(figures['broker_cpu'] for figures in rounds):.1f} | {both / first_cpu:.2f} "
            f"| {median(figures['mib'] for figures in rounds):,.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    raise SystemExit(main())
