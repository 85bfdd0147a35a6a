"""Jobs in Spark itself: tasks that fail once, conditions in SQL, and a driver that is killed with its tasks alive."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow", reason="the pipeline needs gregor-broker[spark]")
pytest.importorskip("pyspark", reason="the pipeline needs gregor-broker[spark]")

import pyspark

from gregor.pipeline.archive import writing
from gregor.pipeline.archive.manifest import Manifest
from gregor.pipeline.jobs import generate as generate_job
from gregor.pipeline.jobs.desk import Summary
from gregor.pipeline.session import connector_jars, prepare_environment
from tests.broker_process import GREGOR, BrokerProcess
from tests.pipeline.archive_rows import arguments, make_topic, produce, rows_of
from tests.pipeline.job_desk import run_job, run_tasks_once
from tests.pipeline.stored import records_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.peer

LIMIT_S = 1_800.0


def failing_once(work: Callable[[Any], Any], folder: Path) -> Callable[[Any], Any]:
    """Return the same work, whose first attempt at each piece fails after the work is done."""

    def attempt(piece: Any) -> Any:
        done = work(piece)
        with contextlib.suppress(FileExistsError):
            os.close(os.open(folder / f"{piece.source.covers}", os.O_CREAT | os.O_EXCL))
            raise RuntimeError("the first attempt fails")
        return done

    return attempt


def test_a_retried_archive_task_adds_no_rows_or_files(
    in_spark: Callable[..., Summary], broker_process: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_topic(broker_process, "failing")
    produce(broker_process, "failing", [b"v%d" % number for number in range(100)])
    attempts = tmp_path / "attempts"
    attempts.mkdir()
    monkeypatch.setattr(writing, "archive_range", failing_once(writing.archive_range, attempts))
    in_spark("archive", *arguments(broker_process, "failing", tmp_path / "lake"))
    assert len(list(attempts.iterdir())) == 2
    rows = rows_of(tmp_path / "lake")
    assert [(row["partition"], row["offset"]) for row in rows] == [(p, o) for p in (0, 1) for o in range(50)]
    assert set((tmp_path / "lake" / "data").rglob("*.parquet")) == set(Manifest(tmp_path / "lake").files())


def test_a_replay_writes_only_records_that_match_its_where_condition(
    in_spark: Callable[..., Summary], broker_process: BrokerProcess, tmp_path: Path
) -> None:
    make_topic(broker_process, "2020")
    produce(broker_process, "2020", [b"v%d" % number for number in range(100)])
    in_spark("archive", *arguments(broker_process, "2020", tmp_path))
    command = ["--bootstrap-server", broker_process.bootstrap, "--archive", str(tmp_path), "--prefix", "some-"]
    where = ["--where", "cast(value AS string) LIKE '%7' AND offset < 30"]
    summary = in_spark("replay", *command, *where)
    assert summary.rows == [("some-2020", 1, 0, 6)]
    assert [row["value"] for row in records_of(broker_process, "some-2020", 1)] == [
        b"v%d" % number for number in (7, 17, 27, 37, 47, 57)
    ]
    assert in_spark("replay", *command, *where).rows == [("some-2020", 1, 50, 0)]


@pytest.mark.skipif(not connector_jars(pyspark.__version__), reason="Spark's connector is not in its cache directory")
def test_records_of_the_spark_connector_are_archived_and_replayed_unchanged(
    in_spark: Callable[..., Summary], spark: SparkSession, broker_process: BrokerProcess, tmp_path: Path
) -> None:
    """Records that Spark's own connector wrote are archived, and the connector reads the replayed records."""
    make_topic(broker_process, "theirs", 3)
    broker = {"kafka.bootstrap.servers": broker_process.bootstrap}
    columns = ["CAST(id AS STRING) AS key", "CAST(id * 7 AS STRING) AS value"]
    columns.append("array(struct('n' AS key, CAST(CAST(id AS STRING) AS BINARY) AS value)) AS headers")
    written = spark.range(0, 5000, 1, 2).selectExpr(*columns)
    written.write.format("kafka").options(**broker, topic="theirs", includeHeaders="true").save()
    in_spark("archive", *arguments(broker_process, "theirs", tmp_path))
    in_spark("replay", "--bootstrap-server", broker_process.bootstrap, "--archive", str(tmp_path), "--prefix", "and-")

    def read(topic: str) -> DataFrame:
        options = {**broker, "subscribe": topic, "includeHeaders": "true", "kafka.isolation.level": "read_committed"}
        return spark.read.format("kafka").options(**options).load().drop("topic", "offset")

    theirs, replayed = read("theirs"), read("and-theirs")
    assert theirs.count() == replayed.count() == 5000
    assert theirs.exceptAll(replayed).isEmpty()
    archived = spark.read.parquet(str(tmp_path / "data")).select(*theirs.columns)
    assert archived.exceptAll(theirs).isEmpty()


@pytest.mark.parametrize("table_format", ["parquet", "delta", "iceberg"])
def test_an_archive_is_complete_after_its_spark_driver_was_killed_or_interrupted(
    broker_process: BrokerProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pytestconfig: pytest.Config,
    table_format: str,
) -> None:
    monkeypatch.setattr(generate_job, "run_tasks", run_tasks_once)
    name = f"driven-{table_format}"
    topic = ["--bootstrap-server", broker_process.bootstrap, "--topic", name, "--partitions", "2"]
    run_job("generate", *topic, "--records", "4000", "--value-bytes", "100", "--batch-records", "20")
    root = tmp_path / "lake"
    command = [sys.executable, *GREGOR, "pipeline", "archive", "--master", "local[2]"]
    # Spark takes a second or two for the commit of a table, so there are fewer commits.
    round_bytes = "40000" if table_format == "delta" else "10000"
    command += arguments(broker_process, name, root, "--format", table_format, "--max-bytes", round_bytes)
    killed = sum(kill_at_work(command, root) for _ in range(pytestconfig.getoption("--job-kills")))
    print(f"{table_format}: the driver was ended by a signal {killed} times")
    assert killed
    done = subprocess.run(command, capture_output=True, text=True)
    if "Spark has no Delta Lake" in done.stderr or "needs `pip install" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    # Read by the command line too: this process's Spark may be without Delta Lake.
    audit = [sys.executable, *GREGOR, "pipeline", "audit", "--archive", str(root), "--topics", name]
    audit += ["--against-bootstrap-server", broker_process.bootstrap]
    compared = subprocess.run(audit, capture_output=True, text=True)
    assert compared.returncode == 0, compared.stdout + compared.stderr
    assert compared.stdout.count("the same") == 2
    assert sum(batch.rows for batch in Manifest(root).batches) == 4000


def kill_at_work(command: list[str], root: Path) -> bool:
    """Start the job, and end it by a signal some time after it has counted a batch.

    Returns whether it had not ended before.
    """
    before = len(list((root / "manifest").glob("*.json")))
    driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + LIMIT_S
    while len(list((root / "manifest").glob("*.json"))) == before and driver.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    time.sleep(random.uniform(0.0, 2.0))
    is_running = driver.poll() is None
    how = random.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGINT))
    driver.send_signal(how)
    assert driver.wait(LIMIT_S) in (0, -signal.SIGKILL, 128 + signal.SIGTERM, 128 + signal.SIGINT), how
    return is_running


SUBMITTED = """
from gregor.pipeline.session import spark_session

session = spark_session("ours")
again = spark_session("other", master="local[7]")
names = ("spark.master", "spark.app.name", "spark.sql.session.timeZone", "spark.driver.memory", "spark.ui.enabled")
print("found", *(session.conf.get(name) for name in names))
assert again.sparkContext is session.sparkContext
session.stop()
"""


@pytest.mark.parametrize("way", ["spark-submit", "the environment"])
def test_settings_given_to_spark_submit_take_precedence(tmp_path: Path, way: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(SUBMITTED)
    told = ["--master", "local[1]", "--name", "mine", "--conf", "spark.sql.session.timeZone=Asia/Tokyo"]
    environment = os.environ | {"SPARK_CONF_DIR": str(tmp_path), "PYSPARK_PYTHON": sys.executable}
    (tmp_path / "spark-defaults.conf").write_text("spark.driver.memory 777m\n")
    command = [sys.executable, str(program)]
    if way == "spark-submit":
        prepare_environment()
        environment = os.environ | environment | {"JAVA_HOME": os.environ.get("JAVA_HOME", "")}
        command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), *told, str(program)]
    else:
        environment["PYSPARK_SUBMIT_ARGS"] = " ".join([*told, "pyspark-shell"])
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "found local[1] mine Asia/Tokyo 777m false" in done.stdout


def test_values_of_a_registry_are_decoded_in_a_data_frame(
    spark: SparkSession, broker_process: BrokerProcess, tmp_path: Path
) -> None:
    pytest.importorskip("grpc_tools", reason="schemas of a registry need gregor-broker[registry]")
    from gregor.pipeline.errors import OptionError
    from gregor.pipeline.values.frames import decode_values
    from gregor.pipeline.values.wire_format import write_header
    from tests.pipeline.schema_registry import running_registry

    with running_registry() as server:
        proto = 'syntax = "proto3"; message C { string page = 1; map<string, int32> tags = 2; }'
        number = server.register("clicks-value", proto, "PROTOBUF")
        good = write_header(number, (0,)) + b"\x0a\x04home\x12\x05\x0a\x01k\x10\x07"
        rows = spark.createDataFrame([(1, good), (2, b"no"), (3, None)], "id int, value binary").repartition(2)
        registry = {"schema.registry.url": server.url}
        decoded = decode_values(rows, registry, "clicks-value", values="protobuf")
        found = {row.id: row for row in decoded.collect()}
        assert (found[1].value.page, found[1].value.tags, found[1].reason) == ("home", {"k": 7}, None)
        assert (found[2].value, found[2].reason) == (None, "WireFormatError: no header of Confluent's wire format")
        assert (found[3].value, found[3].reason) == (None, None)
        assert decoded.where("reason IS NULL").select("value.page").count() == 2
        with pytest.raises(OptionError, match="id is no binary column"):
            decode_values(rows, registry, "clicks-value", values="protobuf", column="id")
        with pytest.raises(OptionError, match="Subject 'other' not found"):
            decode_values(rows, registry, "other")
