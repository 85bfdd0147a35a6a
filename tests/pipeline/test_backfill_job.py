"""`gregor pipeline backfill`: the missing records of an archive, from log directories."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="the pipeline needs gregor-broker[spark]")
pytest.importorskip("pyspark", reason="the pipeline needs gregor-broker[spark]")

import trio

from gregor.client import Producer
from gregor.pipeline.archive import compaction, writing
from gregor.pipeline.archive.manifest import Manifest, ManifestError
from gregor.pipeline.archive.manifest_entry import OffsetRange
from tests.broker_process import BrokerProcess, running_broker
from tests.pipeline.archive_rows import arguments, make_topic, plain, produce, rows_of
from tests.pipeline.job_desk import run_job, run_tasks_here


@pytest.fixture(autouse=True)
def _tasks_here(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (writing, compaction):
        monkeypatch.setattr(module, "run_tasks", run_tasks_here)


def backfill(broker: BrokerProcess, root: Path, *more: str) -> list[object]:
    """Run the job; its table."""
    logs = str(broker.directory / "logs")
    summary, _ = run_job("backfill", "--log-dir", logs, "--archive", str(root), *plain(root), *more)
    return list(summary.rows)


def test_only_what_is_missing_is_read(broker_process: BrokerProcess, tmp_path: Path) -> None:
    make_topic(broker_process, "filled")
    produce(broker_process, "filled", [b"v%d" % number for number in range(40)], batch_size=200)
    start = '--option=startingOffsets={"filled": {"0": 13, "1": 20}}'
    run_job("archive", *arguments(broker_process, "filled", tmp_path, start))
    produce(broker_process, "filled", [b"w%d" % number for number in range(10)])
    table = backfill(broker_process, tmp_path, "--topics", "fill*", "--max-bytes", "1000")
    assert table == [("filled", 0, 0, 25, 18, 0), ("filled", 1, 0, 25, 25, 0)]
    assert [(row["partition"], row["offset"]) for row in rows_of(tmp_path)] == [
        (p, o) for p in (0, 1) for o in range(25)
    ]
    assert backfill(broker_process, tmp_path, "--topics", "fill*") == []
    summary, _ = run_job("archive", *arguments(broker_process, "filled", tmp_path))
    assert summary.rows == []
    manifest = Manifest(tmp_path)
    assert not manifest.missing(OffsetRange("filled", 0, 0, 25))


def test_a_backfill_from_log_directories_gives_the_same_rows_as_an_archive_run(
    broker_process: BrokerProcess, tmp_path: Path
) -> None:
    make_topic(broker_process, "both", 1)

    async def send() -> None:
        async with Producer(broker_process.bootstrap, transactional_id="both", compression_type="gzip") as producer:
            for number in range(6):
                try:
                    async with producer.transaction():
                        await producer.send("both", b"v%d" % number, timestamp_ms=number)
                        await producer.flush()
                        if number % 2:
                            raise ValueError("changed its mind")
                except ValueError:
                    pass

    trio.run(send)
    for kind in ("raw", "batches"):
        lake, other = tmp_path / kind / "a", tmp_path / kind / "b"
        run_job("archive", *arguments(broker_process, "both", lake, "--values", kind))
        backfill(broker_process, other, "--topics", "both", "--values", kind)
        assert rows_of(lake) == rows_of(other)
        assert len(rows_of(lake)) == 3
        assert [batch.checksum for batch in Manifest(lake).batches] == [
            batch.checksum for batch in Manifest(other).batches
        ]


def test_records_of_an_open_transaction_are_not_backfilled_until_it_is_committed(
    broker_process: BrokerProcess, tmp_path: Path
) -> None:
    make_topic(broker_process, "undecided", 1)

    async def send() -> None:
        async with Producer(broker_process.bootstrap, transactional_id="undecided") as producer:
            async with producer.transaction():
                await producer.send("undecided", b"1")
            async with producer.transaction():
                await producer.send("undecided", b"2")
                await producer.flush()
                await trio.to_thread.run_sync(backfill, broker_process, tmp_path, "--topics", "undecided")

    trio.run(send)
    assert [row["value"] for row in rows_of(tmp_path)] == [b"1"]
    assert backfill(broker_process, tmp_path, "--topics", "undecided") == [("undecided", 0, 2, 4, 1, 0)]


def test_another_clusters_directories_are_refused(broker_process: BrokerProcess, tmp_path: Path) -> None:
    make_topic(broker_process, "ours", 1)
    produce(broker_process, "ours", [b"1"], 1)
    run_job("archive", *arguments(broker_process, "ours", tmp_path / "lake"))
    with running_broker(tmp_path / "other", "cluster.id=other") as other:
        make_topic(other, "ours", 1)
        produce(other, "ours", [b"1", b"2"], 1)
        with pytest.raises(ManifestError, match=r"the archive is of cluster .*, not of"):
            backfill(other, tmp_path / "lake")
