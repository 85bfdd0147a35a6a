"""One Spark session for the whole run, and jobs in it."""

import contextlib
import fcntl
import importlib.util
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from gregor.pipeline.jobs.desk import Progress, Summary
from tests.pipeline import job_desk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of the pipeline `spark`, before tests are selected by their marks."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.spark)


@contextlib.contextmanager
def one_at_a_time(factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let one process of this run into the block at a time: two downloads of Delta Lake might disturb each other."""
    with (factory.getbasetemp().parent / "spark-start.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """Provide a Spark on two cores, which tries tasks three times; with Delta Lake if that is installed."""
    if importlib.util.find_spec("pyspark") is None:
        pytest.skip("the pipeline needs gregor-broker[spark]: `make pipeline` installs it")
    from pyspark.errors import PySparkRuntimeError

    from gregor.pipeline.delta_lake import delta_settings
    from gregor.pipeline.errors import PipelineError
    from gregor.pipeline.session import spark_session

    config = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}
    with one_at_a_time(tmp_path_factory):
        try:
            session = spark_session("gregor-tests", master="local[2,3]", config=config | delta_settings())
        except (PipelineError, PySparkRuntimeError):
            session = spark_session("gregor-tests", master="local[2,3]", config=config)
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def in_spark(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> Callable[..., Summary]:
    """Return a function that runs a job at a desk with a session."""

    class SparkDesk(job_desk.TestDesk):
        def session(self, config: Mapping[str, str] | None = None) -> Any:
            return spark

        @contextlib.contextmanager
        def progress(self, total: int, unit: str) -> Iterator[Progress]:
            yield SimpleNamespace(advance=lambda done: None)

    monkeypatch.setattr(job_desk, "TestDesk", SparkDesk)
    return lambda name, *command: job_desk.run_job(name, *command)[0]
