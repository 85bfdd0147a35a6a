"""`gregor pipeline archive`: every committed record once, after any failures."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the pipeline needs gregor-broker[spark]")
pytest.importorskip("pyspark", reason="the pipeline needs gregor-broker[spark]")

import pyarrow as pa
import trio
from pyarrow import parquet

from gregor.client import Admin, Producer
from gregor.pipeline.archive import compaction, manifest, writing
from gregor.pipeline.archive.manifest import Manifest, ManifestError
from gregor.pipeline.archive.manifest_entry import ArchivedBatch
from gregor.pipeline.archive.row_table import ParquetFiles
from gregor.pipeline.errors import DataLossError, OptionError
from gregor.pipeline.jobs import archive as archive_job
from tests.broker_process import BrokerProcess
from tests.pipeline.archive_rows import arguments, make_topic, produce, rows_of
from tests.pipeline.job_desk import run_job, run_tasks_here


@pytest.fixture(autouse=True)
def _tasks_here(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (writing, compaction):
        monkeypatch.setattr(module, "run_tasks", run_tasks_here)


def test_rows_are_laid_out_by_date_and_archived_once(broker_process: BrokerProcess, tmp_path: Path) -> None:
    make_topic(broker_process, "dated")
    produce(broker_process, "dated", [b"v%d" % number for number in range(30)])
    summary, _ = run_job("archive", *arguments(broker_process, "dated", tmp_path, "--group", "lake"))
    assert summary.rows == [("dated", 0, 0, 15, 15, 0), ("dated", 1, 0, 15, 15, 0)]
    rows = rows_of(tmp_path)
    assert [(row["partition"], row["offset"]) for row in rows] == [(p, o) for p in (0, 1) for o in range(15)]
    assert {row["value"] for row in rows} == {b"v%d" % number for number in range(30)}
    assert rows[0]["headers"] == [{"key": "h", "value": b"1"}]
    assert {row["path"] for row in rows} == {f"data/topic=dated/date=1970-01-0{day}" for day in (2, 3, 4)}

    summary, _ = run_job("archive", *arguments(broker_process, "dated", tmp_path))
    assert summary.notes == ["nothing new: everything is archived"]
    produce(broker_process, "dated", [b"more"])
    run_job("archive", *arguments(broker_process, "dated", tmp_path, "--group", "lake"))
    assert len(rows_of(tmp_path)) == 31

    async def committed() -> dict[tuple[str, int], int]:
        async with Admin(broker_process.bootstrap) as admin:
            return await admin.group_offsets("lake")

    assert trio.run(committed) == {("dated", 0): 16, ("dated", 1): 15}


def test_max_bytes_limits_the_size_of_each_archived_batch(broker_process: BrokerProcess, tmp_path: Path) -> None:
    make_topic(broker_process, "bounded")
    produce(broker_process, "bounded", [b"x" * 1000 for _ in range(200)], batch_size=2000)
    run_job("archive", *arguments(broker_process, "bounded", tmp_path, "--max-bytes", "50000", "--by", "hour"))
    batches = Manifest(tmp_path).batches
    assert 3 < len(batches) < 8
    assert len(rows_of(tmp_path)) == 200
    assert rows_of(tmp_path)[0]["path"].endswith("/date=1970-01-02/hour=00")
    assert sum(batch.rows for batch in batches) == 200


def test_aborted_records_are_not_archived(broker_process: BrokerProcess, tmp_path: Path) -> None:
    make_topic(broker_process, "decided", 1)

    async def send() -> None:
        async with Producer(broker_process.bootstrap, transactional_id="archived") as producer:
            for value in (b"yes", b"no", b"yes"):
                try:
                    async with producer.transaction():
                        await producer.send("decided", value)
                        await producer.flush()
                        if value == b"no":
                            raise ValueError("changed its mind")
                except ValueError:
                    pass

    trio.run(send)
    for kind, values in (("raw", {b"yes"}), ("batches", None)):
        root = tmp_path / kind
        run_job("archive", *arguments(broker_process, "decided", root, "--values", kind))
        rows = rows_of(root)
        assert len(rows) == 2
        assert Manifest(root).positions() == {("decided", 0): 6}
        if values is not None:
            assert {row["value"] for row in rows} == values


class CrashError(Exception):
    """An error at the point where the driver is killed."""


STEPS = (
    "before the tasks",
    "after the tasks",
    "before it is decided",
    "after it is decided",
    "between files",
    "before it counts",
    "after it counts",
)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("kind", ["raw", "batches"])
def test_a_crash_at_each_step_loses_and_doubles_no_records(
    broker_process: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, kind: str
) -> None:
    topic = f"killed-{kind}-{step.replace(' ', '-')}"
    make_topic(broker_process, topic)
    produce(broker_process, topic, [b"v%d" % number for number in range(60)], batch_size=200)
    command = arguments(broker_process, topic, tmp_path, "--max-bytes", "1500", "--values", kind)
    for attempt in range(4):
        with monkeypatch.context() as patch:
            _crash_at(patch, step)
            with pytest.raises(CrashError):
                run_job("archive", *command)
        if attempt == 1:
            run_job("archive", *command, "--compact")
            produce(broker_process, topic, [b"w%d" % number for number in range(60)], batch_size=200)
        elif attempt == 3:
            run_job("archive", *command)
    rows = rows_of(tmp_path)
    if kind == "raw":
        assert [(row["partition"], row["offset"]) for row in rows] == [(p, o) for p in (0, 1) for o in range(60)]
    else:
        assert len({(row["partition"], row["lastOffset"]) for row in rows}) == len(rows)
        assert {row["lastOffset"] for row in rows} >= {59}
    counted = set(Manifest(tmp_path).files())
    assert set((tmp_path / "data").rglob("*.parquet")) == counted


def _crash_at(patch: pytest.MonkeyPatch, step: str) -> None:
    def crash(*_: object, **__: object) -> None:
        raise CrashError

    def after(work: Callable[..., Any]) -> Callable[..., Any]:
        def both(*given: Any, **named: Any) -> None:
            work(*given, **named)
            raise CrashError

        return both

    if step == "before the tasks":
        patch.setattr(writing, "run_tasks", crash)
    elif step == "after the tasks":
        patch.setattr(writing, "run_tasks", after(run_tasks_here))
    elif step == "before it is decided":
        patch.setattr(manifest, "create_json", crash)
    elif step == "after it is decided":
        patch.setattr(Manifest, "stage", after(Manifest.stage))
    elif step == "between files":
        patch.setattr(ParquetFiles, "publish", _publish_some)
    elif step == "before it counts":
        patch.setattr(Manifest, "count", crash)
    else:
        patch.setattr(Manifest, "count", after(Manifest.count))


def _publish_some(table: ParquetFiles, batch: ArchivedBatch) -> None:
    publish(table, replace(batch, files=batch.files[: len(batch.files) // 2]))
    raise CrashError


publish = ParquetFiles.publish


def test_compaction_keeps_every_row(broker_process: BrokerProcess, tmp_path: Path) -> None:
    make_topic(broker_process, "small")
    produce(broker_process, "small", [b"x" * 100 for _ in range(100)], batch_size=500)
    run_job("archive", *arguments(broker_process, "small", tmp_path, "--max-bytes", "3000"))
    before = rows_of(tmp_path)
    assert len(Manifest(tmp_path).files()) > 10
    summary, _ = run_job("archive", *arguments(broker_process, "small", tmp_path, "--compact"))
    assert summary.notes[0].endswith("files became 10")
    assert rows_of(tmp_path) == before
    summary, _ = run_job("archive", *arguments(broker_process, "small", tmp_path, "--compact"))
    assert summary.notes[0] == "no small files to compact"


def test_archive_with_follow_compacts_its_files_regularly(
    broker_process: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_topic(broker_process, "followed", 1)
    rounds: list[int] = []
    files: list[int] = []

    def produce_more(interval_s: float) -> None:
        assert interval_s == 10.0
        files.append(len(list((tmp_path / "data").rglob("*.parquet"))))
        rounds.append(len(rounds))
        if len(rounds) == 12:
            raise KeyboardInterrupt
        produce(broker_process, "followed", [b"%d" % len(rounds)], 1)

    monkeypatch.setattr(archive_job, "FILES_A_COMPACTION", 5)
    monkeypatch.setattr(archive_job, "time", SimpleNamespace(sleep=produce_more))
    command = arguments(broker_process, "followed", tmp_path, "--follow", "--compact")
    summary, _ = run_job("archive", *command)
    assert summary.rows == [("followed", 0, 0, 11, 11, 0)]
    assert [int(row["value"]) for row in rows_of(tmp_path)] == list(range(1, 12))
    assert max(files) == 5, "the one of the old batches, and four of new ones"
    assert len(Manifest(tmp_path).files()) == 1


def test_values_that_are_not_valid_text_or_json_become_dead_letters(
    broker_process: BrokerProcess, tmp_path: Path
) -> None:
    make_topic(broker_process, "texts", 1)
    produce(broker_process, "texts", [b'{"a": 1}', b"\xff", None, b'{"a": "x"}', b"{", b'{"a": 5, "b": 2}'], 1)
    run_job("archive", *arguments(broker_process, "texts", tmp_path / "text", "--values", "string"))
    assert [row["value"] for row in rows_of(tmp_path / "text")] == [
        '{"a": 1}',
        None,
        '{"a": "x"}',
        "{",
        '{"a": 5, "b": 2}',
    ]
    summary, _ = run_job("archive", *arguments(broker_process, "texts", tmp_path / "json", "--values", "json"))
    assert summary.rows == [("texts", 0, 0, 6, 4, 2)]
    schema = tmp_path / "schema.avsc"
    schema.write_text(json.dumps({"type": "record", "name": "r", "fields": [{"name": "a", "type": ["null", "long"]}]}))
    typed = tmp_path / "typed"
    command = arguments(broker_process, "texts", typed, "--values", "json", "--schema", str(schema))
    run_job("archive", *command)
    assert [row["value"] for row in rows_of(typed)] == [{"a": 1}, None, {"a": 5}]
    letters = [parquet.ParquetFile(path).read() for path in (typed / "dead_letters").rglob("*.parquet")]
    dead = pa.concat_tables(letters).sort_by("offset").to_pylist()
    assert [(row["offset"], row["value"]) for row in dead] == [(1, b"\xff"), (3, b'{"a": "x"}'), (4, b"{")]
    assert all(row["reason"] for row in dead)
    with pytest.raises(ManifestError, match="was made with values json, not raw"):
        run_job("archive", *arguments(broker_process, "texts", typed, "--values", "raw"))
    with pytest.raises(ManifestError, match="was made with value type"):
        run_job("archive", *arguments(broker_process, "texts", typed))


def test_avro_values_of_two_writer_schemas_are_read_with_the_newer_schema(
    broker_process: BrokerProcess, tmp_path: Path
) -> None:
    fastavro = pytest.importorskip("fastavro")
    old = {"type": "record", "name": "click", "fields": [{"name": "id", "type": "int"}]}
    new = {
        "type": "record",
        "name": "click",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "page", "type": ["null", "string"], "default": None},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 0},
        ],
    }

    def encoded(number: int, schema: dict[str, Any], record: dict[str, Any]) -> bytes:
        import io

        body = io.BytesIO()
        fastavro.schemaless_writer(body, fastavro.parse_schema(schema), record)
        return struct.pack(">bi", 0, number) + body.getvalue()

    make_topic(broker_process, "avro", 1)
    values = [encoded(1, old, {"id": 7}), encoded(2, new, {"id": 8, "page": "home", "at": 5}), b"no", None]
    values.append(encoded(3, old, {"id": 9}))
    values.append(encoded(1, old, {"id": 10}) + b"!")
    produce(broker_process, "avro", values, 1)
    for name, schema in (("old", old), ("new", new)):
        (tmp_path / name).write_text(json.dumps(schema))
    schemas = ["--schema", f"1={tmp_path / 'old'}", "--schema", f"2={tmp_path / 'new'}"]
    root = tmp_path / "lake"
    summary, _ = run_job("archive", *arguments(broker_process, "avro", root, "--values", "avro", *schemas))
    assert summary.rows == [("avro", 0, 0, 6, 3, 3)]
    decoded = [row["value"] for row in rows_of(root)]
    assert [value and (value["id"], value["page"]) for value in decoded] == [(7, None), (8, "home"), None]


def test_a_topic_that_was_deleted_and_recreated_is_refused(broker_process: BrokerProcess, tmp_path: Path) -> None:
    make_topic(broker_process, "again", 1)
    produce(broker_process, "again", [b"1"], 1)
    run_job("archive", *arguments(broker_process, "again", tmp_path))

    async def remove() -> None:
        async with Admin(broker_process.bootstrap) as admin:
            await admin.delete_topics(["again"])

    trio.run(remove)
    make_topic(broker_process, "again", 1)
    produce(broker_process, "again", [b"1", b"2"], 1)
    with pytest.raises(ManifestError, match="it was made again"):
        run_job("archive", *arguments(broker_process, "again", tmp_path))


def test_records_deleted_before_they_were_archived_are_reported_as_data_loss(
    broker_process: BrokerProcess, tmp_path: Path
) -> None:
    make_topic(broker_process, "lost", 1)
    produce(broker_process, "lost", [b"1", b"2"], 1)
    run_job("archive", *arguments(broker_process, "lost", tmp_path))
    produce(broker_process, "lost", [b"3", b"4"], 1)

    async def remove() -> None:
        async with Admin(broker_process.bootstrap) as admin:
            await admin.delete_records({("lost", 0): 3})

    trio.run(remove)
    with pytest.raises(DataLossError, match="lost-0: offset 2 is missing, the log has 3 up to 4"):
        run_job("archive", *arguments(broker_process, "lost", tmp_path))
    run_job("archive", *arguments(broker_process, "lost", tmp_path, "--option", "failOnDataLoss=false"))
    assert [row["offset"] for row in rows_of(tmp_path)] == [0, 1, 3]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--values", "avro"], "need a schema"),
        (["--values", "raw", "--schema", "x"], "schema x"),
        (["--option", "nope=1"], "unknown option nope"),
    ],
)
def test_invalid_options_are_refused(
    broker_process: BrokerProcess, tmp_path: Path, more: list[str], message: str
) -> None:
    make_topic(broker_process, f"options-{abs(hash(message))}")
    with pytest.raises(OptionError, match=message):
        run_job("archive", "--bootstrap-server", broker_process.bootstrap, "--archive", str(tmp_path), *more)
