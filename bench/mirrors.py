"""The CPU cost of copying a topic batch by batch, beside that of reading, decoding, encoding and writing its records.

    python -m bench.mirrors [--rounds 3] [--partitions 3] [--cases "100 none,1000 gzip"] [--megabytes 200]
                            [--batch-bytes 16384] [--ways task,decoding]

Two Gregor brokers, one full, one empty; each way of copying (see `mirror_worker`) runs in a process of its own, turn by
turn, into an empty topic. Batches have about 16 kB by default, as with Kafka's default `batch.size`. The CPU is that of
the copying process alone, after its imports; that of the brokers is another column. "x" is the CPU as a multiple of the
first way's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import trio

from bench.clients import ROOT, foreign_python, spread
from bench.one_broker import OneBroker, one_broker
from bench.repeated_topic import BATCH_BYTES, RepeatedTopic, empty_topic, fill, made_batches
from gregor.protocol.records.compression import Codec

WORKER = str(Path(ROOT) / "bench" / "mirror_worker.py")
WAYS = ("task", "mirror", "decoding", "librdkafka")
CASES = "100 none,100 lz4,1000 none,1000 lz4,1000 gzip"


@dataclass(frozen=True)
class Case:
    """A measurement with records of one size in batches of one codec."""

    value_bytes: int
    codec: str

    @property
    def topic(self) -> str:
        """The name of the case's topic."""
        return f"records-{self.value_bytes}-{self.codec}"


def copy(
    way: str, case: Case, filled: RepeatedTopic, partitions: int, batch_bytes: int, brokers: tuple[OneBroker, OneBroker]
) -> dict[str, float]:
    """Run one copy and return its figures."""
    source, target = brokers
    trio.run(empty_topic, target.bootstrap, case.topic, partitions)
    python = foreign_python() if way == "librdkafka" else sys.executable
    command = [python, WORKER, way, source.bootstrap, target.bootstrap, case.topic]
    command += [str(partitions), str(filled.records), case.codec, str(batch_bytes)]
    before = source.cpu_seconds(), target.cpu_seconds()
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ})
    if done.returncode:
        raise RuntimeError(f"{way} failed:\n{done.stderr[-3000:]}")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    figures["source_cpu"] = source.cpu_seconds() - before[0]
    figures["target_cpu"] = target.cpu_seconds() - before[1]
    return figures


def main() -> int:
    """Run all ways and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=3)
    parser.add_argument("--cases", default=CASES, help="sizes of values and codecs")
    parser.add_argument("--batch-bytes", type=int, default=BATCH_BYTES, help="stored; the decoding ways' batch.size")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--megabytes", type=int, default=200, help="what a topic has, stored")
    arguments = parser.parse_args()
    ways = arguments.ways.split(",")
    cases = [Case(int(size), codec) for size, codec in (text.split() for text in arguments.cases.split(","))]
    print("| value, codec | batches | way | MB/s stored | CPU us a batch | x | RSS, MiB | source CPU | target CPU |")
    print("|" + " --- |" * 9)
    with one_broker() as source, one_broker() as target:
        for case in cases:
            codec = Codec[case.codec.upper()]
            batches = made_batches(case.value_bytes, codec, batch_bytes=arguments.batch_bytes)
            size_bytes = arguments.megabytes * 1_000_000
            filling = partial(fill, source.bootstrap, case.topic, arguments.partitions, batches, size_bytes=size_bytes)
            filled = trio.run(filling)
            results = defaultdict(list)
            for _ in range(arguments.rounds):
                for way in ways:
                    results[way].append(
                        copy(way, case, filled, arguments.partitions, arguments.batch_bytes, (source, target))
                    )
            _print_rows(case, filled, results)
    return 0


def _print_rows(case: Case, filled: RepeatedTopic, results: dict[str, list[dict[str, float]]]) -> None:
    least = median(figures["cpu_seconds"] for figures in next(iter(results.values())))
    for way, rounds in results.items():
        cpu = [figures["cpu_seconds"] for figures in rounds]

        def each_batch(name: str, rounds: list[dict[str, float]] = rounds) -> str:
            return f"{median(figures[name] for figures in rounds) / filled.batches * 1e6:.0f}"

        print(
            f"| {case.value_bytes} B, {case.codec} | {filled.batches:,} x {filled.records // filled.batches} | {way} "
            f"| {spread([filled.size_bytes / 1e6 / figures['seconds'] for figures in rounds], ',.0f')} "
            f"| {spread([seconds / filled.batches * 1e6 for seconds in cpu], ',.0f')} | {median(cpu) / least:.1f} "
            f"| {median(figures['rss_mib'] for figures in rounds):.0f} "
            f"| {each_batch('source_cpu')} | {each_batch('target_cpu')} |",
            flush=True,
        )


if __name__ == "__main__":
    raise SystemExit(main())
