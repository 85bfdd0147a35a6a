"""Spark with Delta Lake: the extra `delta`, and the jars that it needs.

The jars are taken from the directory of `session.connector_jars` if they are there; otherwise Spark downloads them
from Maven Central at its first start with them (`spark.jars.packages`).
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from .errors import PipelineError
from .session import connector_jars
from .spark_settings import chosen_settings
from .spark_tasks import context_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .jobs.desk import Desk

PACKAGE = "io.delta:delta-spark_4.2_2.13:4.4.0"
EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
CATALOG = "spark.sql.catalogImplementation"
_EXCLUDED = (
    "org.slf4j:*",
    "org.apache.hadoop:*",
    "org.apache.parquet:*",
    "org.apache.logging.log4j:*",
    "com.fasterxml.jackson.core:*",
    "com.fasterxml.jackson.datatype:*",
    "com.github.luben:*",
    "org.roaringbitmap:*",
    "org.xerial.snappy:*",
)
"""The jars that Spark contains already."""


def delta_settings(*, in_catalog: bool = False) -> dict[str, str]:
    """Return the settings that a session needs at its start.

    With `in_catalog` Spark's own catalog is Hive's, by default in `./metastore_db`, unless the user has chosen
    another one: the default of PySpark forgets its tables at the session's end. Raises PipelineError without the extra
    `delta`.
    """
    if importlib.util.find_spec("delta") is None:
        raise PipelineError(
            "an archive in Delta Lake needs `pip install 'gregor-broker[delta]'`; --format parquet needs nothing"
        )
    import pyspark

    settings = {
        "spark.sql.extensions": EXTENSION,
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # Times are written as Arrow writes them, not in the type that Parquet has deprecated.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # The number of tasks that read a table's log; the default of 50 is for logs of millions of files.
        "spark.databricks.delta.snapshotPartitions": "4",
        # VACUUM lists the table's folders with as many tasks as there are folders, up to this number; it is 10,000
        # by default, and most of the time is spent on starting tasks.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "32",
    }
    if in_catalog and CATALOG not in chosen_settings():
        settings[CATALOG] = "hive"
    if not any("/delta-spark_" in jar for jar in connector_jars(pyspark.__version__)):
        settings["spark.jars.packages"] = PACKAGE
        settings["spark.jars.excludes"] = ",".join(_EXCLUDED)
    return settings


def delta_session(desk: Desk, *, in_catalog: bool = False) -> SparkSession:
    """Return the desk's session, started with Delta Lake or containing it already. Raises PipelineError.

    For `in_catalog` see `delta_settings`.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkRuntimeError

    settings = delta_settings(in_catalog=in_catalog)
    try:
        session = desk.session(settings)
        # An existing session has the jars or not.
        context = context_of(session)
        if context is None:
            # The server of Spark Connect has Delta Lake or says so when a table is used.
            return session
        context._jvm.Thread.currentThread().getContextClassLoader().loadClass(EXTENSION)
    except (PySparkRuntimeError, Py4JJavaError) as fault:
        raise PipelineError(
            f"Spark has no Delta Lake: {PACKAGE} could not be had from Maven Central (Spark has printed why); its jars "
            "may also lie in $SPARK_JARS_HOME, see docs/pipeline-tables.md"
        ) from fault
    return session
