"""Records whose producers count time in other units, or before 1970: years beyond 9999, and before 1."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyarrow", reason="the pipeline needs gregor-broker[spark]")
pytest.importorskip("pyspark", reason="the pipeline needs gregor-broker[spark]")

import pyarrow as pa
import pyspark
import trio
from pyspark.sql.types import StructType

from gregor.client import Producer
from gregor.pipeline.archive import writing
from gregor.pipeline.archive.description import Period
from gregor.pipeline.errors import PipelineError
from gregor.pipeline.jobs import audit, replay
from gregor.pipeline.jobs.desk import Summary
from gregor.pipeline.kafka.kafka_raw import KafkaRawSource
from gregor.pipeline.session import connector_jars
from gregor.protocol.records import v2
from gregor.protocol.records.record import Record
from tests.broker_process import BrokerProcess
from tests.pipeline.job_desk import run_job, run_tasks_once
from tests.pipeline.topics import new_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MICROSECONDS = 1_700_000_000_000_000
"""The time of a producer that counts microseconds: milliseconds of the year 55840."""
GREGORIAN_US = -12_219_292_800_000_000
"""The first microsecond of the Gregorian calendar, 15 October 1582."""
TIMES = (-1, -86_400_000 * 400, 0, 253_402_300_799_999, -62_200_000_000_000, MICROSECONDS)
DATES = ("__HIVE_DEFAULT_PARTITION__", "1968-11-27", "1970-01-01", "9999-12-31", "-0002-12-17", "55840-11-08")


def topic_of(broker: BrokerProcess, times: tuple[int, ...]) -> str:
    """Return a topic with a record of each time."""
    topic = new_topic(broker.bootstrap)

    async def fill() -> None:
        async with Producer(broker.bootstrap) as producer:
            for number, time in enumerate(times):
                await producer.send_batch(topic, 0, v2.build_batch([Record(0, time, b"k", b"%d" % number)]))

    trio.run(fill)
    return topic


def stored_times(broker: BrokerProcess, topic: str) -> list[int]:
    """Return the microseconds of each record, which Python's dates do not all have."""
    reader = KafkaRawSource({"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic}).reader(StructType())
    rows = [batch for each in reader.partitions() for batch in reader.read(each)]
    return [micros for batch in rows for micros in batch["timestamp"].view(pa.int64()).to_pylist()]


@pytest.fixture(autouse=True)
def _tasks_without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (writing, replay, audit):
        monkeypatch.setattr(module, "run_tasks", run_tasks_once)


@pytest.mark.parametrize("period", Period)
def test_records_of_any_time_are_archived_compared_and_replayed(
    broker_process: BrokerProcess, tmp_path: Path, period: Period
) -> None:
    topic = topic_of(broker_process, TIMES)
    broker = ["--bootstrap-server", broker_process.bootstrap]
    archive = ["--archive", str(tmp_path), "--format", "parquet", "--by", str(period)]
    run_job("archive", *broker, "--topics", topic, *archive)
    assert {path.name.removeprefix("date=") for path in (tmp_path / "data" / f"topic={topic}").iterdir()} == set(DATES)
    audited, _ = run_job("audit", "--archive", str(tmp_path), "--against-bootstrap-server", broker_process.bootstrap)
    assert [row[-1] for row in audited.rows] == ["the same"]
    run_job("replay", *broker, *archive[:2], "--prefix", f"{period}-")
    micros = [time * 1000 for time in TIMES]
    assert stored_times(broker_process, topic) == stored_times(broker_process, f"{period}-{topic}") == micros


def test_a_table_of_iceberg_refuses_a_year_that_it_cannot_have(broker_process: BrokerProcess, tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg", reason="archives in Iceberg need gregor-broker[iceberg]")
    topic = topic_of(broker_process, (0, MICROSECONDS))
    command = ["--bootstrap-server", broker_process.bootstrap, "--topics", topic, "--archive", str(tmp_path)]
    with pytest.raises(PipelineError, match=rf"{topic}-0 offset 1: a timestamp outside of the years 1 to 9999"):
        run_job("archive", *command, "--format", "iceberg")


@pytest.mark.peer
def test_records_of_any_time_are_rows_of_delta_lake_and_those_of_the_connector(
    in_spark: Callable[..., Summary], spark: SparkSession, broker_process: BrokerProcess, tmp_path: Path
) -> None:
    pytest.importorskip("delta", reason="archives in Delta Lake need gregor-broker[delta]")
    topic = topic_of(broker_process, TIMES)
    command = ["--bootstrap-server", broker_process.bootstrap, "--topics", topic, "--archive", str(tmp_path)]
    try:
        in_spark("archive", *command, "--format", "delta")
    except PipelineError as fault:
        if "Spark has no Delta Lake" in str(fault):
            pytest.skip(str(fault))
        raise

    def micros(rows: DataFrame) -> list[int]:
        return [row.micros for row in rows.orderBy("offset").selectExpr("unix_micros(timestamp) AS micros").collect()]

    broker = {"kafka.bootstrap.servers": broker_process.bootstrap, "subscribe": topic}
    expected = [time * 1000 for time in TIMES]
    assert micros(spark.read.format("delta").load(str(tmp_path / "data"))) == expected
    assert micros(spark.read.format("kafka_raw").options(**broker).load()) == expected
    if connector_jars(pyspark.__version__):
        theirs = micros(spark.read.format("kafka").options(**broker).load())
        # Before 1582 the connector counts days by the Julian calendar, which Spark itself does not.
        assert [time for time in theirs if time > GREGORIAN_US] == [time for time in expected if time > GREGORIAN_US]
