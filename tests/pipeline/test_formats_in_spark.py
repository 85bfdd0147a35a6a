"""Both formats inside a real Spark: their schemas, plans, streams and sinks, and Spark's own connector beside them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.broker_process import BrokerProcess
from tests.cluster_of_processes import running_cluster
from tests.pipeline.topics import fill, new_topic
from tests.waiting import wait_until

pytest.importorskip("pyspark", reason="the pipeline needs gregor-broker[spark]")

import pyspark
from pyspark.errors import AnalysisException
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema

from gregor.client.producer.partitioner import partition_for_key
from gregor.pipeline.columns.schemas import Mode, arrow_schema
from gregor.pipeline.session import connector_jars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.peer

SMOKE = Path(__file__).parents[2].parent / "shared" / "spark" / "spark-smoke"
CONNECTOR_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
RECORDS = 5_000
SMOKE_LIMIT_S = 3_000


@pytest.fixture(scope="module")
def topic(broker_process: BrokerProcess) -> str:
    """Return a topic with the numbers 0 to 4999 in three partitions."""
    name = new_topic(broker_process.bootstrap, 3)
    for partition, (first, count) in enumerate([(0, 3000), (3000, 1500), (4500, 500)]):
        fill(broker_process.bootstrap, name, count, partition=partition, first=first, batch=50)
    return name


def read(
    spark: "SparkSession", broker: BrokerProcess, topic: str, source: str = "kafka_raw", **more: str
) -> "DataFrame":
    if source == "kafka_log":
        return spark.read.format(source).options(topic=topic, **more).load(str(broker.directory / "logs"))
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, **more}
    return spark.read.format(source).options(**options).load()


def numbers(frame: "DataFrame") -> list[int]:
    return sorted(int(row.value) for row in frame.select("value").collect())


def sink_options(broker: BrokerProcess, topic: str, **more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic, **more}


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("source", ["kafka_raw", "kafka_log"])
def test_schemas_are_the_same_to_spark_and_to_arrow(
    spark: "SparkSession", broker_process: BrokerProcess, topic: str, source: str, mode: Mode
) -> None:
    frame = read(spark, broker_process, topic, source, mode=mode)
    assert to_arrow_schema(frame.schema, timezone="UTC").equals(arrow_schema(mode))
    assert frame.count() > 0


@pytest.mark.parametrize("source", ["kafka_raw", "kafka_log"])
def test_every_record_is_read_once(
    spark: "SparkSession", broker_process: BrokerProcess, topic: str, source: str
) -> None:
    options = {"splitBytes": "20000"} if source == "kafka_log" else {"minPartitions": "7"}
    assert numbers(read(spark, broker_process, topic, source, **options)) == list(range(RECORDS))


def test_filters_are_pushed_down_if_asked_for(spark: "SparkSession", broker_process: BrokerProcess, topic: str) -> None:
    frame = read(spark, broker_process, topic, "kafka_log", splitBytes="20000", pushdown="true")
    wanted = frame.where((f.col("partition") == 0) & (f.col("offset") >= 2990))
    assert numbers(wanted) == list(range(2990, 3000))
    assert wanted.select(f.spark_partition_id()).distinct().count() == 1


def test_a_filtered_query_does_not_change_later_queries_of_the_same_data_frame(
    spark: "SparkSession", broker_process: BrokerProcess, topic: str
) -> None:
    """With push-down Spark 4.2 gives a query without filters the plan of the filtered query before it."""
    for source in ("kafka_log", "kafka_raw"):
        frame = read(spark, broker_process, topic, source)
        assert frame.where((f.col("partition") == 0) & (f.col("offset") >= 2990)).count() == 10
        assert frame.count() == RECORDS


@pytest.mark.skipif(not connector_jars(pyspark.__version__), reason="Spark's connector is not in its cache directory")
@pytest.mark.parametrize("source", ["kafka_raw", "kafka_log"])
def test_the_connector_gives_the_same_rows(
    spark: "SparkSession", broker_process: BrokerProcess, topic: str, source: str
) -> None:
    ours = read(spark, broker_process, topic, source).select(*CONNECTOR_COLUMNS)
    theirs = read(spark, broker_process, topic, "kafka", includeHeaders="true").select(*CONNECTOR_COLUMNS)
    assert ours.schema == theirs.schema
    assert ours.exceptAll(theirs).count() == 0
    assert theirs.exceptAll(ours).count() == 0


def copy_stream(spark: "SparkSession", broker: BrokerProcess, source: str, target: str, checkpoint: Path) -> list[int]:
    """Copy all rows in micro-batches of some 2,000 rows; return the number of rows of each."""
    options = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "subscribe": source,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "2000",
    }
    rows = spark.readStream.format("kafka_raw").options(**options).load().drop("topic")
    writing = rows.writeStream.format("kafka_raw").options(
        **sink_options(broker, target, checkpointLocation=str(checkpoint))
    )
    query = writing.trigger(availableNow=True).start()
    query.awaitTermination()
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]


def test_a_stream_copies_a_topic_exactly_once_after_a_lost_commit(
    spark: "SparkSession", broker_process: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    target = new_topic(broker_process.bootstrap, 3)
    sizes = copy_stream(spark, broker_process, topic, target, tmp_path / "checkpoint")
    assert sum(sizes) == RECORDS
    assert all(size <= 2000 for size in sizes)
    assert copy_stream(spark, broker_process, topic, target, tmp_path / "checkpoint") == []

    # As if the driver had died before it wrote the commit of the last micro-batch.
    commits = tmp_path / "checkpoint" / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink()
    assert sum(copy_stream(spark, broker_process, topic, target, tmp_path / "checkpoint")) == sizes[-1]

    kept = ["key", "value", "partition", "offset", "timestamp", "headers"]
    copied = read(spark, broker_process, target, **{"kafka.isolation.level": "read_committed"})
    assert (
        copied.select("key", "value", "partition", "timestamp")
        .exceptAll(read(spark, broker_process, topic).select("key", "value", "partition", "timestamp"))
        .isEmpty()
    )
    assert copied.select(*kept).count() == RECORDS


def test_every_window_is_written_that_the_watermark_has_closed(
    spark: "SparkSession", broker_process: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    """Windows are closed in a micro-batch without rows; one whose commit was lost is repeated without effect."""
    options = {"kafka.bootstrap.servers": broker_process.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    rows = spark.readStream.format("kafka_raw").options(**options).load()
    windows = rows.withWatermark("timestamp", "1 millisecond").groupBy(f.window("timestamp", "10 milliseconds")).count()
    checkpoint, out = tmp_path / "checkpoint", str(tmp_path / "out")

    def run() -> list[tuple[int, int]]:
        writing = windows.writeStream.format("parquet").outputMode("append").option("path", out)
        query = writing.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()
        return [(progress.batchId, progress.numInputRows) for progress in query.recentProgress]

    def counts() -> list[int]:
        return [row["count"] for row in spark.read.parquet(out).collect()]

    assert run() == [(0, RECORDS), (1, 0)]
    assert counts() == [10] * (RECORDS // 10 - 1), "all but the last, which is open"
    (checkpoint / "commits" / "1").unlink()
    (checkpoint / "commits" / ".1.crc").unlink()
    run()
    assert counts() == [10] * (RECORDS // 10 - 1)


def test_records_are_partitioned_by_key_in_a_topic_with_more_partitions(
    spark: "SparkSession", broker_process: BrokerProcess, topic: str
) -> None:
    """Records are decoded and partitioned by key, which `gregor pipeline mirror` does not do."""
    target = new_topic(broker_process.bootstrap, 5)
    rows = read(spark, broker_process, topic, **{"kafka.isolation.level": "read_committed"}).drop("partition")
    rows.write.format("kafka_raw").mode("append").options(**sink_options(broker_process, target)).save()
    copied = read(spark, broker_process, target, **{"kafka.isolation.level": "read_committed"})
    kept = ["key", "value", "timestamp", "headers"]
    assert copied.select(kept).exceptAll(rows.select(kept)).isEmpty()
    assert copied.count() == RECORDS
    places = {bytes(row.key): row.partition for row in copied.select("key", "partition").collect()}
    assert places == {key: partition_for_key(key, 5) for key in places}


def test_a_retried_sink_task_writes_no_duplicates(
    spark: "SparkSession", broker_process: BrokerProcess, tmp_path: Path
) -> None:
    """The connector's own sink writes 5,000 duplicates of 10,000 rows in this case."""
    target = new_topic(broker_process.bootstrap, 3)
    failed = str(tmp_path / "failed")

    def fail_once(batches: Any) -> Any:
        yield from batches
        if not Path(failed).exists():
            Path(failed).touch()
            raise ZeroDivisionError("once")

    rows = spark.range(0, 10_000, 1, 2).select(f.col("id").cast("string").alias("value"))
    rows = rows.mapInArrow(fail_once, rows.schema)
    rows.write.format("kafka_raw").mode("append").options(**sink_options(broker_process, target)).save()
    assert Path(failed).exists()
    committed = {"kafka.isolation.level": "read_committed"}
    assert numbers(read(spark, broker_process, target, **committed)) == list(range(10_000))


def test_errors_of_a_source_are_raised_as_analysis_exceptions(
    spark: "SparkSession", broker_process: BrokerProcess, topic: str
) -> None:
    for options, complaint in (
        ({"startingOffset": "1"}, "did you mean startingOffsets"),
        (
            {"startingOffsets": json.dumps({topic: {"0": 9_999_999, "1": -2, "2": -2}})},
            f"{topic}-0: offset 9999999 is missing",
        ),
    ):
        with pytest.raises(AnalysisException, match=complaint):
            read(spark, broker_process, topic, **options).collect()


def test_the_connectors_own_checks_hold_on_one_broker(broker_process: BrokerProcess) -> None:
    """All checks of `spark-smoke` with Spark's connector and our broker."""
    assert_the_connectors_checks_hold(broker_process.bootstrap)


def test_the_connectors_own_checks_hold_on_three_brokers(tmp_path: Path) -> None:
    with running_cluster(tmp_path, 3, "default.replication.factor=3", "min.insync.replicas=2") as cluster:
        assert_the_connectors_checks_hold(cluster.bootstrap)


def assert_the_connectors_checks_hold(bootstrap: str) -> None:
    """Check that all fourteen checks pass."""
    if not SMOKE.exists():
        pytest.skip(f"{SMOKE} is not there")
    command = [sys.executable, str(SMOKE), bootstrap, "--rows", "20000", "--apis"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=SMOKE_LIMIT_S, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr[-2000:]
    checks = json.loads(answer.stdout)["checks"]
    assert len(checks) == 14
    assert all(check["ok"] for check in checks.values())


def test_the_lag_of_a_query_is_served_by_the_driver(
    spark: "SparkSession", broker_process: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    pytest.importorskip("prometheus_client", reason="metrics need gregor-broker[spark]")
    import urllib.request

    from gregor.pipeline.metrics.stream_metrics import StreamMetrics, connector_metrics, offsets_behind_latest

    metrics = StreamMetrics.serve(spark, "http://127.0.0.1:0")
    options = {"kafka.bootstrap.servers": broker_process.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    rows = spark.readStream.format("kafka_raw").options(**options, maxOffsetsPerTrigger="2000").load()
    seen: list[str] = []

    def scrape(frame: "DataFrame", number: int) -> None:
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics.exposition.port}/metrics") as answer:
            seen.append(answer.read().decode())

    writing = rows.writeStream.queryName("lagging").foreachBatch(scrape).trigger(availableNow=True)
    query = writing.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        query.awaitTermination()
        first = query.recentProgress[0]
        behind = offsets_behind_latest(first)
        assert sum(behind.values()) == RECORDS - 2000
        assert connector_metrics(first)["maxOffsetsBehindLatest"] == str(max(behind.values()))
        assert set(offsets_behind_latest(query.recentProgress[-1]).values()) == {0}
        wait_until(lambda: "gregor_stream_rows_total" in metrics.exposition.text())
    finally:
        spark.streams.removeListener(metrics)
        metrics.exposition.close()
    assert len(seen) == 3
