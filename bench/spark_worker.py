"""One Spark session with one way to read and write topics: the part of `bench.spark_tables` that is measured.

    python -m bench.spark_worker WAY BOOTSTRAP LOG_DIRECTORY TABLE_FORMAT CORES

Each line of input is a JOB with a topic and a directory; the answer is a line of JSON with the seconds. The first
answer says that Spark has started. Jobs: `batch-in` and `stream-in` write the topic's rows to a new table in the
directory, `batch-out` and `stream-out` write the table's rows to the topic, `count` answers with the table's `rows`,
and `follow` starts a query that writes new records to a new table, until `stop`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from gregor.pipeline.delta_lake import delta_settings
from gregor.pipeline.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

READ_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
"""The columns of the connector."""
WRITTEN_COLUMNS = ("key", "value", "partition", "timestamp")
DELTA = "delta"


@dataclass(frozen=True)
class Way:
    """The formats of a source and of a sink, and their options; without a sink the way only reads batches."""

    source: str
    sink: str | None
    source_options: Mapping[str, str] = field(default_factory=dict)
    sink_options: Mapping[str, str] = field(default_factory=dict)


LARGE_POLLS = {"kafka.max.poll.records": "20000", "kafka.max.partition.fetch.bytes": "16777216"}

WAYS: dict[str, Way] = {
    "connector": Way("kafka", "kafka"),
    "connector, large polls": Way("kafka", "kafka", LARGE_POLLS),
    "kafka_raw": Way("kafka_raw", "kafka_raw"),
    "kafka_raw, at least once": Way("kafka_raw", "kafka_raw", {}, {"delivery": "at-least-once"}),
    "kafka_log": Way("kafka_log", None),
}


class Worker:
    """The jobs of a session."""

    def __init__(self, spark: SparkSession, way: Way, bootstrap: str, log_directory: str, table_format: str) -> None:
        self._spark = spark
        self._way = way
        self._broker = {"kafka.bootstrap.servers": bootstrap}
        self._log_directory = log_directory
        self._table_format = table_format
        self._query: StreamingQuery | None = None

    def run(self, job: str, topic: str, directory: str) -> dict[str, float]:
        """Run a job and return its answer."""
        started = time.perf_counter()
        match job:
            case "batch-in":
                self._batch(topic).write.format(self._table_format).mode("overwrite").save(directory)
            case "batch-out":
                rows = self._spark.read.format(self._table_format).load(directory).select(*WRITTEN_COLUMNS)
                rows.write.format(self._sink).mode("append").options(**self._sink_options(topic)).save()
            case "stream-in":
                self._to_table(topic, directory, "earliest").trigger(availableNow=True).start().awaitTermination()
            case "stream-out":
                stream = self._spark.readStream.format(self._table_format)
                if self._table_format != DELTA:
                    stream = stream.schema(self._spark.read.format(self._table_format).load(directory).schema)
                writer = stream.load(directory).select(*WRITTEN_COLUMNS).writeStream.format(self._sink)
                options = {**self._sink_options(topic), "checkpointLocation": f"{directory}-to-{topic}"}
                writer.options(**options).trigger(availableNow=True).start().awaitTermination()
            case "count":
                return {"rows": self._spark.read.format(self._table_format).load(directory).count()}
            case "follow":
                self._query = self._to_table(topic, directory, "latest").start()
            case "stop":
                assert self._query is not None
                self._query.stop()
            case _:
                raise ValueError(f"no job {job}")
        return {"seconds": time.perf_counter() - started}

    def _batch(self, topic: str) -> DataFrame:
        if self._way.source == "kafka_log":
            reader = self._spark.read.format("kafka_log").options(topic=topic, includeHeaders="false")
            return reader.load(self._log_directory).select(*READ_COLUMNS)
        options = {**self._broker, "subscribe": topic, "includeHeaders": "false", **self._way.source_options}
        return self._spark.read.format(self._way.source).options(**options).load().select(*READ_COLUMNS)

    def _to_table(self, topic: str, directory: str, starting_offsets: str) -> DataStreamWriter:
        options = {**self._broker, "subscribe": topic, "includeHeaders": "false", **self._way.source_options}
        reader = self._spark.readStream.format(self._way.source).options(**options)
        rows = reader.option("startingOffsets", starting_offsets).load().select(*READ_COLUMNS)
        writer = rows.writeStream.format(self._table_format).option("path", directory)
        return writer.option("checkpointLocation", f"{directory}/_checkpoint")

    @property
    def _sink(self) -> str:
        assert self._way.sink is not None
        return self._way.sink

    def _sink_options(self, topic: str) -> dict[str, str]:
        return {**self._broker, "topic": topic, **self._way.sink_options}


def main() -> None:
    """Run the jobs until the input ends."""
    way, bootstrap, log_directory, table_format, cores = sys.argv[1:]
    config = delta_settings() if table_format == DELTA else {}
    spark = spark_session(f"tables by {way}", master=f"local[{cores}]", config=config)
    spark.range(1000).selectExpr("sum(id)").collect()
    worker = Worker(spark, WAYS[way], bootstrap, log_directory, table_format)
    print(json.dumps({"seconds": 0}), flush=True)
    for line in sys.stdin:
        job, topic, directory = line.split()
        print(json.dumps(worker.run(job, topic, str(Path(directory)))), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
