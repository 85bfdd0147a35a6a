"""Archives in Delta Lake: the same guarantees by commits of two tables, and the same readers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="the pipeline needs gregor-broker[spark]")
pytest.importorskip("delta", reason="archives in Delta Lake need gregor-broker[delta]")

from gregor.pipeline.archive import manifest as manifests
from gregor.pipeline.archive import writing
from gregor.pipeline.archive.delta_tables import DeltaTables
from gregor.pipeline.archive.manifest import Manifest, ManifestError
from gregor.pipeline.delta_lake import delta_session
from gregor.pipeline.errors import PipelineError
from gregor.pipeline.jobs.desk import Summary
from gregor.pipeline.spark_tasks import run_tasks
from tests.broker_process import BrokerProcess
from tests.pipeline import job_desk
from tests.pipeline.archive_rows import arguments, make_topic, produce
from tests.pipeline.stored import contents, records_of, stored_batches

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

pytestmark = pytest.mark.peer

Run = Callable[..., Summary]


@pytest.fixture(autouse=True)
def _has_delta(in_spark: Run) -> None:
    try:
        delta_session(job_desk.TestDesk())
    except PipelineError as fault:
        pytest.skip(str(fault))


def table(spark: SparkSession, root: Path, folder: str = "data") -> list[Row]:
    """Return the rows of the table, in order, as Delta Lake itself reads them."""
    rows = spark.read.format("delta").load(str(root / folder)).collect()
    return sorted(rows, key=lambda row: (row.partition, row.offset))


def delta(broker: BrokerProcess, topic: str, root: Path, *more: str) -> list[str]:
    """Return arguments of the job `archive`."""
    return arguments(broker, topic, root, "--format", "delta", *more)


def test_listing_tables_creates_no_spark_warehouse_folder(spark: SparkSession) -> None:
    spark.sql("show tables").collect()
    assert not Path("spark-warehouse").exists()


def test_rows_are_in_a_table_and_dead_letters_in_another(
    in_spark: Run, spark: SparkSession, broker_process: BrokerProcess, tmp_path: Path
) -> None:
    make_topic(broker_process, "2021")
    produce(broker_process, "2021", [b"v%d" % number for number in range(28)] + [b"\xff", b"v29"])
    command = delta(broker_process, "2021", tmp_path, "--values", "string", "--by", "hour")
    assert in_spark("archive", *command).rows == [("2021", 0, 0, 15, 14, 1), ("2021", 1, 0, 15, 15, 0)]
    rows = table(spark, tmp_path)
    assert [row.value for row in rows] == [f"v{n}" for p in (0, 1) for n in range(p, 30, 2) if n != 28]
    assert [(row.topic, str(row.date), row.hour) for row in rows[:1]] == [("2021", "1970-01-02", 0)]
    (letter,) = table(spark, tmp_path, "dead_letters")
    assert (letter.topic, letter.partition, letter.offset, bytes(letter.value)) == ("2021", 0, 14, b"\xff")
    assert "UnicodeDecodeError" in letter.reason
    assert in_spark("archive", *command).notes == ["nothing new: everything is archived"]
    produce(broker_process, "2021", [b"more"])
    # The format is the archive's.
    in_spark("archive", *arguments(broker_process, "2021", tmp_path))
    assert len(table(spark, tmp_path)) == 30
    assert not (tmp_path / "staged").exists()
    with pytest.raises(ManifestError, match="was made with format delta, not parquet"):
        in_spark("archive", *arguments(broker_process, "2021", tmp_path, "--format", "parquet"))


class CrashError(Exception):
    """An error at the point where the driver is killed."""


def crash(*_: object, **__: object) -> None:
    """Raise CrashError."""
    raise CrashError


def after(work: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that does the work and then raises CrashError."""

    def both(*given: Any, **named: Any) -> None:
        work(*given, **named)
        raise CrashError

    return both


STEPS: tuple[tuple[object, str, Callable[..., Any]], ...] = (
    (writing, "run_tasks", after(run_tasks)),
    (manifests, "create_json", crash),
    (Manifest, "stage", after(Manifest.stage)),
    (DeltaTables, "_append", after(DeltaTables._append)),
    (DeltaTables, "publish", after(DeltaTables.publish)),
    (Manifest, "count", after(Manifest.count)),
)


def test_a_crash_at_each_step_loses_and_doubles_no_records(
    in_spark: Run, spark: SparkSession, broker_process: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_topic(broker_process, "torn")
    command = delta(broker_process, "torn", tmp_path, "--values", "string")
    for place, name, crashing in STEPS:
        produce(broker_process, "torn", [b"good", b"\xff", b"good", b"good"])
        with monkeypatch.context() as patch:
            patch.setattr(place, name, crashing)
            with pytest.raises(CrashError):
                in_spark("archive", *command)
    in_spark("archive", *command)
    rounds = len(STEPS)
    good = [(0, offset) for offset in range(2 * rounds)] + [(1, offset) for offset in range(1, 2 * rounds, 2)]
    assert [(row.partition, row.offset) for row in table(spark, tmp_path)] == good
    letters = [(row.partition, row.offset) for row in table(spark, tmp_path, "dead_letters")]
    assert letters == [(1, offset) for offset in range(0, 2 * rounds, 2)]


def test_a_delta_archive_can_be_replayed_and_audited_after_compaction(
    in_spark: Run, spark: SparkSession, broker_process: BrokerProcess, tmp_path: Path
) -> None:
    make_topic(broker_process, "leaked")
    make_topic(broker_process, "other", 1)
    produce(broker_process, "other", [b"1"], 1)
    produce(broker_process, "leaked", [None if n % 9 == 0 else b"v%d" % n for n in range(60)], batch_size=300)
    root, parquet = tmp_path / "delta lake", tmp_path / "parquet"
    in_spark("archive", *delta(broker_process, "leaked,other", root, "--max-bytes", "3000"))
    in_spark("archive", *arguments(broker_process, "leaked,other", parquet))
    before = table(spark, root)
    command = ["--bootstrap-server", broker_process.bootstrap, "--archive", str(root), "--topics", "leaked"]
    in_spark("replay", *command, "--prefix", "a-")
    (note, _) = in_spark("archive", *delta(broker_process, "leaked,other", root, "--compact")).notes
    assert "files became" in note
    assert len(spark.read.format("delta").load(str(root / "data")).inputFiles()) == 7
    # Another program compacts the table and writes timestamps of the old type.
    spark.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    written = spark.read.format("delta").load(str(root / "data"))
    written.write.format("delta").mode("overwrite").option("dataChange", "false").save(str(root / "data"))
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    assert table(spark, root) == before
    in_spark("replay", *command, "--prefix", "b-")
    in_spark("replay", *command, "--prefix", "c-", "--where", "offset < 7 AND date < '1970-01-03'")
    for partition in (0, 1):
        originals = contents(records_of(broker_process, "leaked", partition))
        assert contents(records_of(broker_process, "a-leaked", partition)) == originals
        assert contents(records_of(broker_process, "b-leaked", partition)) == originals
        assert contents(records_of(broker_process, "c-leaked", partition)) == originals[:5]
    summary = in_spark("audit", "--archive", str(root), "--against-archive", str(parquet))
    assert [row[-1] for row in summary.rows] == ["the same"] * 3
    assert [row[-1] for row in in_spark("audit", "--archive", str(root)).rows] == ["as noted"] * 3
    spark.sql(f"DELETE FROM delta.`{root / 'data'}` WHERE offset = 3")
    assert not in_spark("audit", "--archive", str(root)).is_clean


def test_batches_are_restored_from_a_delta_archive(
    in_spark: Run, spark: SparkSession, broker_process: BrokerProcess, tmp_path: Path
) -> None:
    make_topic(broker_process, "kept")
    produce(broker_process, "kept", [b"v%d" % n for n in range(60)], batch_size=300, compression_type="gzip")
    in_spark("archive", *delta(broker_process, "kept", tmp_path, "--values", "batches", "--compact"))
    in_spark("restore", "--bootstrap-server", broker_process.bootstrap, "--archive", str(tmp_path), "--prefix", "r-")
    for partition in (0, 1):
        assert stored_batches(broker_process, "r-kept", partition) == stored_batches(broker_process, "kept", partition)


def test_missing_records_are_backfilled_into_a_delta_archive(
    in_spark: Run, spark: SparkSession, broker_process: BrokerProcess, tmp_path: Path
) -> None:
    make_topic(broker_process, "logged", 1)
    produce(broker_process, "logged", [b"v%d" % number for number in range(20)], 1)
    start = '--option=startingOffsets={"logged": {"0": 15}}'
    in_spark("archive", *delta(broker_process, "logged", tmp_path, start))
    logs = ["--log-dir", str(broker_process.directory / "logs"), "--topics", "logged"]
    in_spark("backfill", *logs, "--archive", str(tmp_path))
    assert [row.offset for row in table(spark, tmp_path)] == list(range(20))


def test_tables_with_deletion_vectors_or_without_a_manifest_are_refused(
    in_spark: Run, spark: SparkSession, broker_process: BrokerProcess, tmp_path: Path
) -> None:
    make_topic(broker_process, "strange", 1)
    produce(broker_process, "strange", [b"1"], 1)
    command = delta(broker_process, "strange", tmp_path)
    in_spark("archive", *command)
    spark.sql(f"ALTER TABLE delta.`{tmp_path / 'data'}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    with pytest.raises(PipelineError, match=r"data has delta\.enableDeletionVectors=true"):
        in_spark("audit", "--archive", str(tmp_path))
    for path in (tmp_path / "manifest").iterdir():
        path.unlink()
    with pytest.raises(ManifestError, match="no manifest says what it has"):
        in_spark("archive", *command)


def test_dead_letters_that_can_be_decoded_later_become_rows(
    in_spark: Run, spark: SparkSession, broker_process: BrokerProcess, tmp_path: Path
) -> None:
    topic = "retried"
    make_topic(broker_process, topic)
    old = {"type": "record", "name": "r", "fields": [{"name": "n", "type": "int"}]}
    values = [header + b"\x06" for header in (b"\0\0\0\0\x01", b"\0\0\0\0\x02") for _ in range(4)]
    produce(broker_process, topic, [*values, b"never decodable"])
    (tmp_path / "schema").write_text(json.dumps(old))
    root = tmp_path / "lake"
    known, both = (["--schema", f"{number}={tmp_path / 'schema'}"] for number in (1, 2))
    in_spark("archive", *delta(broker_process, topic, root, "--values", "avro", *known))
    assert len(table(spark, root, "dead_letters")) == 5
    for _ in range(2):
        better = in_spark("dead_letters", "--archive", str(root), "--retry", *known, *both)
        assert len(table(spark, root, "dead_letters")) == 1
    assert better.rows == [(topic, 0, 1)]
    assert len(table(spark, root)) == 8
