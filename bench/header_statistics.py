"""`gregor pipeline stats` from batch headers alone: gigabytes a second, with Spark's start measured separately.

    python -m bench.header_statistics [--gigabytes 4] [--rounds 5] [--cores 1] [--value-bytes 1000]

A log directory of three partitions in uncompressed batches of 16 kB, Kafka's default, lies in the page cache. The job
runs once over a tiny topic, so that Spark and its Python workers have started and imported what they need; then in
rounds over the large one. CPU seconds are those of all of Spark's processes; "the tasks alone" does what the tasks
do in this process, without Spark.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING

from bench.clients import spread
from bench.process_tree import cpu_seconds
from bench.repeated_topic import made_batches
from gregor.pipeline.jobs import stats
from gregor.pipeline.jobs.desk import Metrics, NoMetrics, Progress, Summary
from gregor.pipeline.jobs.sources import open_reader
from gregor.pipeline.logs.segment_files import segment_path, write_segment
from gregor.pipeline.session import spark_session
from gregor.protocol.records.compression import Codec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 3
SEGMENT_BYTES = 1 << 30
TINY_BYTES = 1 << 20
BASE_OFFSET = Struct(">q")


def write_topic(log_directory: Path, topic: str, size_bytes: int, batches: list[tuple[bytes, int]]) -> int:
    """Write segment files of all partitions, about `size_bytes` in all; return their exact size."""
    written = 0
    for partition in range(PARTITIONS):
        offset, left = 0, size_bytes // PARTITIONS
        while left > 0:
            path = segment_path(log_directory, topic, partition, offset)
            count = max(1, min(left, SEGMENT_BYTES) // len(batches[0][0]))
            write_segment(path, _numbered(batches, offset, count))
            offset += count * batches[0][1]
            left -= count * len(batches[0][0])
            written += path.stat().st_size
    return written


def _numbered(batches: list[tuple[bytes, int]], offset: int, count: int) -> Iterator[bytes]:
    for number in range(count):
        batch, held = batches[number % len(batches)]
        # The bytes before the CRC can be changed without a new CRC.
        yield BASE_OFFSET.pack(offset) + batch[BASE_OFFSET.size :]
        offset += held


class QuietDesk:
    """The desk of the job: a started session, no progress shown."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self.metrics: Metrics = NoMetrics()

    def session(self, config: Mapping[str, str] | None = None) -> SparkSession:
        """Return the session, see Desk."""
        return self._session

    @contextmanager
    def progress(self, total: int, unit: str) -> Iterator[Progress]:
        """Show nothing, see Desk."""
        yield _NoProgress()

    def say(self, line: str) -> None:
        """Print nothing, see Desk."""


class _NoProgress:
    def advance(self, done: int) -> None:
        pass


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds of `work`, and the CPU seconds of this process and its descendants."""
    before, started = cpu_seconds(os.getpid()), time.perf_counter()
    work()
    return time.perf_counter() - started, cpu_seconds(os.getpid()) - before


def arguments_of(log_directory: Path, topic: str) -> argparse.Namespace:
    """Return the job's arguments as the command line would parse them."""
    parser = argparse.ArgumentParser()
    stats.add_arguments(parser)
    return parser.parse_args(["--log-dir", str(log_directory), "--topics", topic])


def tasks_alone(options: argparse.Namespace) -> None:
    """Run the work of all tasks, one after the other."""
    reader = open_reader(options, mode="batches")
    for each in reader.partitions():
        stats._read_headers(reader.read(each))


def main() -> int:
    """Run all rounds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--value-bytes", type=int, default=1000)
    parsed = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gregor-bench-") as scratch:
        log_directory = Path(scratch)
        batches = made_batches(parsed.value_bytes, Codec.NONE)
        write_topic(log_directory, "tiny", TINY_BYTES, batches)
        size = write_topic(log_directory, "large", int(parsed.gigabytes * 1e9), batches)
        large = arguments_of(log_directory, "large")
        tasks_alone(arguments_of(log_directory, "tiny"))
        alone = [timed(lambda: tasks_alone(large)) for _ in range(parsed.rounds)]
        sessions: list[SparkSession] = []
        start = timed(lambda: sessions.append(spark_session("statistics", master=f"local[{parsed.cores}]")))
        desk = QuietDesk(sessions[0])
        first = timed(lambda: stats.run(arguments_of(log_directory, "tiny"), desk))
        summaries: list[Summary] = []
        jobs = [timed(lambda: summaries.append(stats.run(large, desk))) for _ in range(parsed.rounds)]
        columns = list(summaries[0].columns)
        assert sum(int(str(row[columns.index("BYTES")])) for row in summaries[-1].rows) == size
        count = sum(int(str(row[columns.index("BATCHES")])) for row in summaries[-1].rows)
        sessions[0].stop()
    print(f"\n{size / 1e9:.2f} GB in {count:,} batches, local[{parsed.cores}]\n")
    print("| | seconds | GB/s | CPU s | GB/s of CPU |\n|" + " --- |" * 5)
    print(f"| Spark's start | {start[0]:.2f} | | {start[1]:.2f} | |")
    print(f"| its first job, 1 MB | {first[0]:.2f} | | {first[1]:.2f} | |")
    for name, rounds in (("the job", jobs), ("the tasks alone", alone)):
        columns = [spread([values[index] for values in rounds], ".2f") for index in (0, 1)]
        rates = [spread([size / 1e9 / values[index] for values in rounds], ".2f") for index in (0, 1)]
        print(f"| {name} | {columns[0]} | {rates[0]} | {columns[1]} | {rates[1]} |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
