"""Topics from one broker to another in Spark: the job `mirror`, and rows that are read, decoded, encoded and written.

    python -m bench.spark_copies [--rounds 3] [--cases "1000 none,100 none"] [--megabytes 300]

Two Gregor brokers; a Spark of its own for each way, local[2]: `mirror` is `gregor pipeline mirror`, the others read and
write rows by `kafka_raw` and by Spark's own connector (which loses their times and is not exact). Each copies the topic
once to warm up, then in turns, each time into an empty topic. CPU seconds are those of Spark with all of its processes,
beside those of the two brokers; "x" is how much more CPU Spark needs than with `mirror`.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from contextlib import ExitStack
from functools import partial
from statistics import median

import trio

from bench.clients import spread
from bench.mirrors import Case
from bench.one_broker import one_broker
from bench.repeated_topic import RepeatedTopic, empty_topic, fill, made_batches
from bench.spark_copier import COPIERS
from bench.spark_process import spark_process
from gregor.protocol.records.compression import Codec

PARTITIONS = 3


def main() -> int:
    """Run all ways and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cases", default="1000 none,100 none", help="sizes of values and codecs")
    parser.add_argument("--ways", default=",".join(COPIERS))
    parser.add_argument("--megabytes", type=int, default=300, help="what a topic has, stored")
    parser.add_argument("--cores", type=int, default=2)
    arguments = parser.parse_args()
    cases = [Case(int(size), codec) for size, codec in (text.split() for text in arguments.cases.split(","))]
    print("| value, codec | way | MB/s | CPU s: Spark | x | brokers | peak MiB |\n|" + " --- |" * 7, flush=True)
    with ExitStack() as stack:
        source, target = stack.enter_context(one_broker()), stack.enter_context(one_broker())
        place = (source.bootstrap, target.bootstrap, str(arguments.cores))
        ways = {
            way: stack.enter_context(spark_process("bench.spark_copier", way, *place))
            for way in arguments.ways.split(",")
        }
        for case in cases:
            batches = made_batches(case.value_bytes, Codec[case.codec.upper()])
            size_bytes = arguments.megabytes * 1_000_000
            topic = trio.run(partial(fill, source.bootstrap, case.topic, PARTITIONS, batches, size_bytes=size_bytes))
            results: defaultdict[str, list[dict[str, float]]] = defaultdict(list)
            for turn in range(arguments.rounds + 1):
                for way, spark in ways.items():
                    trio.run(empty_topic, target.bootstrap, case.topic, PARTITIONS)
                    figures = spark.measured(case.topic, [source, target])
                    print(f"# {case.topic} {way}: {figures}", file=sys.stderr, flush=True)
                    if turn:
                        results[way].append(figures)
            _print_rows(case, topic, results)
    return 0


def _print_rows(case: Case, topic: RepeatedTopic, results: dict[str, list[dict[str, float]]]) -> None:
    least = median(figures["spark_cpu"] for figures in next(iter(results.values())))
    for way, rounds in results.items():
        cpu = [figures["spark_cpu"] for figures in rounds]
        print(
            f"| {case.value_bytes} B, {case.codec}, {topic.size_bytes / 1e6:,.0f} MB | {way} "
            f"| {spread([topic.size_bytes / 1e6 / figures['seconds'] for figures in rounds], ',.0f')} "
            f"| {spread(cpu, '.2f')} | {median(cpu) / least:.1f} "
            f"| {median(figures['broker_cpu'] for figures in rounds):.1f} "
            f"| {median(figures['mib'] for figures in rounds):,.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    raise SystemExit(main())
