"""One Spark session for the whole run, and log directories to read."""

import importlib.util
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """A small Spark on two cores, whose tasks are tried three times."""
    if importlib.util.find_spec("pyspark") is None:
        pytest.skip("the pipeline needs gregor[spark]: `make pipeline` installs it")
    from gregor.pipeline.session import spark_session

    session = spark_session(
        "gregor-tests",
        master="local[2,3]",
        config={"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"},
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
