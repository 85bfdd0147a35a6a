"""One Spark session with one way to copy topics: the part of `bench.spark_copies` that is measured.

    python -m bench.spark_copier WAY SOURCE TARGET CORES

Each line of input names a topic; when it is copied, under the same name, a line of
JSON answers with the seconds. The first answer says that Spark has started.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from gregor.pipeline.jobs import mirror
from gregor.pipeline.jobs.desk import Metrics, NoMetrics
from gregor.pipeline.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Copier = Callable[["SparkSession", str, str, str], None]


class _QuietDesk:
    """The desk of the job: a started session, no progress shown."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self.metrics: Metrics = NoMetrics()

    def session(self, config: Mapping[str, str] | None = None) -> SparkSession:
        return self._session

    @contextlib.contextmanager
    def progress(self, total: int, unit: str) -> Iterator[_QuietDesk]:
        yield self

    def advance(self, done: int) -> None:
        pass

    def say(self, line: str) -> None:
        pass


def _by_the_job(spark: SparkSession, source: str, target: str, topic: str) -> None:
    parser = argparse.ArgumentParser()
    mirror.add_arguments(parser)
    mirror.run(parser.parse_args(["--from", source, "--to", target, "--topics", topic]), _QuietDesk(spark))


def _by_rows(name: str, **more: str) -> Copier:
    def copy(spark: SparkSession, source: str, target: str, topic: str) -> None:
        options = {"kafka.bootstrap.servers": source, "subscribe": topic, "includeHeaders": "true"}
        rows = spark.read.format(name).options(**options).load()
        columns = rows.select("key", "value", "topic", "partition", "headers", "timestamp")
        sink = columns.write.format(name).mode("append")
        sink.options(**{"kafka.bootstrap.servers": target, "includeHeaders": "true", **more}).save()

    return copy


COPIERS: dict[str, Copier] = {
    "mirror": _by_the_job,
    "kafka_raw": _by_rows("kafka_raw"),
    "connector": _by_rows("kafka"),
}


def main() -> None:
    """Run the copies until the input ends."""
    way, source, target, cores = sys.argv[1:]
    spark = spark_session(f"copies by {way}", master=f"local[{cores}]")
    spark.range(1000).selectExpr("sum(id)").collect()
    print(json.dumps({"seconds": 0}), flush=True)
    for line in sys.stdin:
        started = time.perf_counter()
        COPIERS[way](spark, source, target, line.strip())
        print(json.dumps({"seconds": time.perf_counter() - started}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
