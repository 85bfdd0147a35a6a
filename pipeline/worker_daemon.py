"""The process that forks Spark's Python workers, with the modules of tasks imported once for all of them.

`spark.python.daemon.module=gregor.pipeline.worker_daemon` runs it in place of `pyspark.daemon`, which leaves every
import to each worker: the pages of modules are then shared, and a new worker can begin its first task at once. Spark
uses it for tasks; the processes that plan a query keep Spark's own daemon. Source: daemon.py of PySpark 4.2.
"""

from __future__ import annotations

import gc
import importlib
import os

MODULE = "gregor.pipeline.worker_daemon"
SETTING = "spark.python.daemon.module"

IMPORTED = (
    "pyspark.worker",
    "pyarrow",
    "gregor.pipeline.kafka.kafka_raw",
    "gregor.pipeline.kafka.kafka_raw_stream",
    "gregor.pipeline.logs.kafka_log",
    "gregor.pipeline.sink.sinking",
    "gregor.pipeline.spark_tasks",
)


def import_modules() -> None:
    """Import the modules of tasks, and exempt their objects from garbage collection, whose marks would unshare them."""
    # A library of linear algebra that starts threads in this process would have none in the forked ones.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for name in IMPORTED:
        importlib.import_module(name)
    gc.freeze()


def main() -> None:
    """Import the modules, then do what `pyspark.daemon` does: fork a worker at each request."""
    import_modules()
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
