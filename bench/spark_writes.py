"""Parquet into topics with Spark's own connector and with `kafka_raw`, turn by turn.

    python -m bench.spark_writes [--rounds 3] [--cases 1000000x1000,5000000x100] [--ways connector,kafka_raw]

One Gregor broker, topics of three partitions; a Spark of its own for each way, local[2]. Each writes each table once to
warm up, then in turns, each time into a new topic. Rows have no keys and no headers; `kafka_raw` keeps their times and
is exactly once by default, the connector does neither. CPU seconds are those of the writing Spark with all of its
processes and of the broker; memory is the peak of the Spark's processes together, pages that forks share counted for
each.
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

import pyarrow as pa
import trio
from pyarrow import parquet

from bench.clients import spread
from bench.one_broker import one_broker
from bench.repeated_topic import empty_topic, made_batches
from bench.spark_process import spark_process
from bench.spark_writer import SINKS
from gregor.client import Admin
from gregor.client.wire.offset_lookup import LATEST
from gregor.pipeline.columns.record_batches import RecordBatches, RecordOptions
from gregor.protocol.records.compression import Codec

PARTITIONS = 3
FILES = 4


def make_table(directory: Path, records: int, value_bytes: int) -> None:
    """Write `records` rows in FILES files of Parquet, which repeat a few megabytes of values."""
    directory.mkdir()
    stored = b"".join(batch for batch, _ in made_batches(value_bytes, Codec.NONE, repetitive=0.936))
    made = pa.Table.from_batches(RecordBatches("made", 0, RecordOptions()).read(memoryview(stored)))
    for number in range(FILES):
        left = records * (number + 1) // FILES - records * number // FILES
        with parquet.ParquetWriter(directory / f"{number}.parquet", made.schema) as writer:
            while left > 0:
                writer.write_table(made.slice(0, left))
                left -= len(made)


async def count_records(bootstrap: str, topic: str) -> int:
    """Return the number of offsets in the topic: records, and the markers of transactions."""
    async with Admin(bootstrap) as admin:
        ends = await admin.list_offsets({(topic, partition): LATEST for partition in range(PARTITIONS)})
    return sum(end.offset for end in ends.values() if end is not None)


def main() -> int:
    """Run all ways and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cases", default="1000000x1000,5000000x100", help="records x bytes of a value")
    parser.add_argument("--ways", default="connector,kafka_raw", help=f"of {'; '.join(SINKS)}")
    parser.add_argument("--cores", type=int, default=2)
    arguments = parser.parse_args()
    print("| records | by | rows/s | MB/s | CPU s: Spark | broker | peak MiB |\n|" + " --- |" * 7, flush=True)
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gregor-bench-")))
        broker = stack.enter_context(one_broker())
        ways = {
            way: stack.enter_context(spark_process("bench.spark_writer", way, broker.bootstrap, str(arguments.cores)))
            for way in arguments.ways.split(",")
        }
        for case in arguments.cases.split(","):
            records, value_bytes = map(int, case.split("x"))
            make_table(scratch / case, records, value_bytes)
            results: defaultdict[str, list[dict[str, float]]] = defaultdict(list)
            for turn in range(arguments.rounds + 1):
                for way, spark in ways.items():
                    trio.run(partial(empty_topic, broker.bootstrap, case, PARTITIONS))
                    figures = spark.measured(f"{scratch / case} {case}", [broker])
                    print(f"# {case} {way}: {figures}", file=sys.stderr, flush=True)
                    if trio.run(count_records, broker.bootstrap, case) < records:
                        raise RuntimeError(f"rows are missing in {case} by {way}")
                    if turn:
                        results[way].append(figures)
            for way, rounds in results.items():
                print(
                    f"| {records:,} x {value_bytes} B | {way} "
                    f"| {spread([records / figures['seconds'] for figures in rounds], ',.0f')} "
                    f"| {records * value_bytes / 1e6 / median(figures['seconds'] for figures in rounds):,.0f} "
                    f"| {spread([figures['spark_cpu'] for figures in rounds], '.1f')} "
                    f"| {median(figures['broker_cpu'] for figures in rounds):.1f} "
                    f"| {median(figures['mib'] for figures in rounds):,.0f} |",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
