"""One Spark session with one way to write topics: the part of `bench.spark_writes` that is measured.

    python -m bench.spark_writer WAY BOOTSTRAP CORES

Each line of input names a directory of Parquet and a topic; when the rows are in the topic, a line of JSON answers with
the seconds. The first answer says that Spark has started.
"""

from __future__ import annotations

import json
import sys
import time

from gregor.pipeline.session import spark_session

COLUMNS = ("key", "value", "headers", "timestamp")

SINKS: dict[str, tuple[str, dict[str, str]]] = {
    "connector": ("kafka", {"includeHeaders": "true"}),
    "kafka_raw": ("kafka_raw", {}),
    "kafka_raw, at least once": ("kafka_raw", {"delivery": "at-least-once"}),
}


def main() -> None:
    """Run the writes until the input ends."""
    way, bootstrap, cores = sys.argv[1:]
    name, more = SINKS[way]
    spark = spark_session(f"writes by {way}", master=f"local[{cores}]")
    spark.range(1000).selectExpr("sum(id)").collect()
    print(json.dumps({"seconds": 0}), flush=True)
    for line in sys.stdin:
        directory, topic = line.split()
        started = time.perf_counter()
        rows = spark.read.parquet(directory).select(*COLUMNS)
        options = {"kafka.bootstrap.servers": bootstrap, "topic": topic, **more}
        rows.write.format(name).mode("append").options(**options).save()
        print(json.dumps({"seconds": time.perf_counter() - started}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
