"""One Spark session with one way to read topics: the part of `bench.spark_reads` that is measured.

    python -m bench.spark_reader WAY BOOTSTRAP LOG_DIRECTORY CORES

Each line of input names a topic and a directory; when the topic is there as Parquet, a line of JSON answers with the
rows and the seconds. The first answer, with no rows, says that Spark has started.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from gregor.pipeline.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
"""The columns of the connector."""

Reader = Callable[["SparkSession", str, str, str], "DataFrame"]


def _over_the_network(name: str, **more: str) -> Reader:
    def read(spark: SparkSession, bootstrap: str, log_directory: str, topic: str) -> DataFrame:
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "includeHeaders": "false", **more}
        return spark.read.format(name).options(**options).load()

    return read


def _from_the_log(spark: SparkSession, bootstrap: str, log_directory: str, topic: str) -> DataFrame:
    return spark.read.format("kafka_log").options(topic=topic, includeHeaders="false").load(log_directory)


READERS: dict[str, Reader] = {
    "connector": _over_the_network("kafka"),
    "connector, large polls": _over_the_network(
        "kafka", **{"kafka.max.poll.records": "20000", "kafka.max.partition.fetch.bytes": "16777216"}
    ),
    "kafka_raw": _over_the_network("kafka_raw"),
    "kafka_log": _from_the_log,
}


def main() -> None:
    """Run the reads until the input ends."""
    way, bootstrap, log_directory, cores = sys.argv[1:]
    read = READERS[way]
    spark = spark_session(f"reads by {way}", master=f"local[{cores}]")
    spark.range(1000).selectExpr("sum(id)").collect()
    print(json.dumps({"rows": 0, "seconds": 0}), flush=True)
    for line in sys.stdin:
        topic, directory = line.split()
        started = time.perf_counter()
        read(spark, bootstrap, log_directory, topic).select(*COLUMNS).write.mode("overwrite").parquet(directory)
        seconds = time.perf_counter() - started
        print(json.dumps({"rows": spark.read.parquet(directory).count(), "seconds": seconds}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
