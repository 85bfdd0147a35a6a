"""`gregor pipeline audit`: missing, duplicate and different records, and correct ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the pipeline needs gregor-broker[spark]")
pytest.importorskip("pyspark", reason="the pipeline needs gregor-broker[spark]")

import trio

from gregor.client import Producer
from gregor.pipeline.archive import writing
from gregor.pipeline.archive.manifest import Manifest
from gregor.pipeline.jobs import audit as audit_job
from gregor.pipeline.jobs import passes
from gregor.pipeline.jobs.desk import Summary
from gregor.protocol.records import v2
from gregor.protocol.records.record import Record
from tests.broker_process import BrokerProcess
from tests.pipeline.archive_rows import arguments, make_topic, produce
from tests.pipeline.job_desk import run_job, run_tasks_here
from tests.pipeline.topics import delete_topic


@pytest.fixture(autouse=True)
def _tasks_here(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (audit_job, passes, writing):
        monkeypatch.setattr(module, "run_tasks", run_tasks_here)


def audit(*command: str) -> Summary:
    """Run the job."""
    summary, _ = run_job("audit", *command)
    return summary


def rows_by_name(summary: Summary) -> list[dict[str, Any]]:
    """Return the table as dictionaries."""
    return [dict(zip(summary.columns, row, strict=True)) for row in summary.rows]


def segment(root: Path, *batches: bytes) -> list[str]:
    """Write a log directory with one partition; return the options for it."""
    folder = root / "logs" / "t-0"
    folder.mkdir(parents=True)
    (folder / f"{0:020d}.log").write_bytes(b"".join(batches))
    return ["--log-dir", str(root / "logs")]


def batch(first: int, count: int, *, last: int | None = None, timestamp: int = 1, sequence: int = -1) -> bytes:
    """Return a batch of producer 7 if it has a sequence number."""
    records = [Record(first + index, timestamp, None, b"%d" % (first + index)) for index in range(count)]
    identity: dict[str, Any] = (
        {} if sequence < 0 else {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
    )
    return v2.build_batch(records, base_offset=first, last_offset=last, **identity)


def test_missing_offsets_duplicates_and_decreasing_timestamps_are_counted(tmp_path: Path) -> None:
    stored = [
        batch(0, 5, sequence=0, timestamp=9),
        batch(5, 3, last=9, sequence=5),
        batch(12, 2, sequence=0, timestamp=20),
    ]
    summary = audit(*segment(tmp_path, *stored))
    (row,) = rows_by_name(summary)
    assert (row["FROM"], row["UNTIL"], row["RECORDS"]) == (0, 14, 10)
    assert (row["COMPACTED"], row["MISSING"], row["DUPLICATES"], row["TIMES-BACK"]) == (2, 2, 1, 1)
    assert summary.notes == [
        "t-0: offsets 10 to 11 are not there",
        "t-0: offset 12: sequence 0 of producer 7 was there before",
    ]
    assert not summary.is_clean


def test_a_compacted_topic_has_no_gaps(tmp_path: Path) -> None:
    command = segment(tmp_path, batch(0, 5), batch(12, 2))
    summary = audit(*command, "--compacted", "t")
    (row,) = rows_by_name(summary)
    assert (row["COMPACTED"], row["MISSING"]) == (7, 0)
    assert summary.is_clean


def test_transaction_markers_are_not_counted_as_missing_records(broker_process: BrokerProcess) -> None:
    make_topic(broker_process, "sound", 2)
    produce(broker_process, "sound", [b"%d" % number for number in range(20)])

    async def send() -> None:
        async with Producer(broker_process.bootstrap, transactional_id="sound") as producer, producer.transaction():
            await producer.send("sound", b"1", partition=0)

    trio.run(send)
    summary = audit("--bootstrap-server", broker_process.bootstrap, "--topics", "sound", "--contents")
    first, second = rows_by_name(summary)
    assert summary.is_clean
    assert (first["RECORDS"], first["MARKERS"], first["SKEW"], first["MISSING"]) == (11, 1, 1.05, 0)
    assert (second["RECORDS"], second["MARKERS"], second["EQUAL"]) == (10, 0, 0)


def test_an_incomplete_archive_differs_from_its_topic_until_it_is_backfilled(
    broker_process: BrokerProcess, tmp_path: Path
) -> None:
    make_topic(broker_process, "kept", 2)
    produce(broker_process, "kept", [b"%d" % number for number in range(40)])
    start = '--option=startingOffsets={"kept": {"0": 5}}'
    run_job("archive", *arguments(broker_process, "kept", tmp_path, start))
    against = ["--against-bootstrap-server", broker_process.bootstrap, "--topics", "kept"]
    summary = audit("--archive", str(tmp_path), *against)
    assert [row["COMPARED"] for row in rows_by_name(summary)] == ["DIFFERS: 15 records here, 20 there", "the same"]
    assert not summary.is_clean
    run_job(
        "backfill", "--log-dir", str(broker_process.directory / "logs"), "--topics", "kept", "--archive", str(tmp_path)
    )
    for command in (["--archive", str(tmp_path), *against], _reversed(broker_process, tmp_path)):
        summary = audit(*command)
        assert [row["COMPARED"] for row in rows_by_name(summary)] == ["the same", "the same"]
        assert summary.is_clean
    assert [row["COMPARED"] for row in rows_by_name(audit("--archive", str(tmp_path)))] == ["as noted"] * 2


def test_only_what_the_archive_has_is_compared_with_brokers(broker_process: BrokerProcess, tmp_path: Path) -> None:
    for topic in ("here", "here.not"):
        make_topic(broker_process, topic, 1)
        produce(broker_process, topic, [b"1", b"2"], 1)
    run_job("archive", *arguments(broker_process, "here", tmp_path))
    logs = str(broker_process.directory / "logs")
    for against in (["--against-bootstrap-server", broker_process.bootstrap], ["--against-log-dir", logs]):
        summary = audit("--archive", str(tmp_path), *against)
        assert [(row["TOPIC"], row["COMPARED"]) for row in rows_by_name(summary)] == [("here", "the same")]
        assert summary.is_clean
    summary = audit("--log-dir", logs, "--topics", "here,here.not", "--against-archive", str(tmp_path))
    assert [row["COMPARED"] for row in rows_by_name(summary)] == ["the same", "DIFFERS: 2 records here only"]


def test_an_archived_topic_that_was_deleted_from_the_brokers_differs(
    broker_process: BrokerProcess, tmp_path: Path
) -> None:
    make_topic(broker_process, "deleted", 1)
    produce(broker_process, "deleted", [b"1"], 1)
    run_job("archive", *arguments(broker_process, "deleted", tmp_path))
    delete_topic(broker_process.bootstrap, "deleted")
    for named in ([], ["--topics", "deleted"]):
        summary = audit("--archive", str(tmp_path), "--against-bootstrap-server", broker_process.bootstrap, *named)
        assert [row["COMPARED"] for row in rows_by_name(summary)] == ["DIFFERS: 1 records here only"]


def _reversed(broker: BrokerProcess, root: Path) -> list[str]:
    return ["--log-dir", str(broker.directory / "logs"), "--topics", "kept", "--against-archive", str(root)]


def test_a_changed_data_file_differs_from_the_checksum_of_the_manifest(
    broker_process: BrokerProcess, tmp_path: Path
) -> None:
    make_topic(broker_process, "changed", 1)
    produce(broker_process, "changed", [b"%d" % number for number in range(40)], 1)
    run_job("archive", *arguments(broker_process, "changed", tmp_path))
    pieces = [Path(str(path)) for path in Manifest(tmp_path).files()]
    pieces[0].write_bytes(pieces[1].read_bytes())
    summary = audit("--archive", str(tmp_path))
    assert [row["COMPARED"] for row in rows_by_name(summary)] == ["DIFFERS from the manifest's checksum"]
    assert not summary.is_clean


def test_a_huge_partition_is_read_by_several_tasks_and_its_equal_records_are_counted_across_them(
    broker_process: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, root = "skewed", tmp_path / "lake"
    make_topic(broker_process, topic)

    async def fill() -> None:
        async with Producer(broker_process.bootstrap) as producer:
            for start in range(0, 100, 10):
                records = [Record(n, 1, None, b"%d" % ((start + n) % 70)) for n in range(10)]
                await producer.send_batch(topic, 0, v2.build_batch(records))
            await producer.send_batch(topic, 1, v2.build_batch([Record(0, 1, None, b"alone")]))

    trio.run(fill)
    run_job("archive", *arguments(broker_process, topic, root, "--max-bytes", "500"))
    tasks: dict[str, list[tuple[str, int]]] = {}

    def count(name: str) -> None:
        def run(session: object, work: Any, do: Any, progress: Any) -> Any:
            tasks.setdefault(name, []).extend(place for place, _ in work)
            return run_tasks_here(session, work, do, progress)

        monkeypatch.setattr(audit_job if name == "audit" else passes, "run_tasks", run)

    count("audit")
    broker = ["--bootstrap-server", broker_process.bootstrap, "--topics", topic]
    found = [
        audit(*broker, "--contents"),
        audit("--archive", str(root), "--topics", topic, "--against-bootstrap-server", broker_process.bootstrap),
        audit("--log-dir", str(broker_process.directory / "logs"), "--topics", topic, "--contents"),
    ]
    assert [[row["EQUAL"] for row in rows_by_name(each)] for each in found] == [[30, 0]] * 3
    assert [row["COMPARED"] for row in rows_by_name(found[1])] == ["the same", "the same"]
    assert tasks["audit"].count((topic, 0)) > 4
    count("stats")
    stats, _ = run_job("stats", *broker)
    assert [row[:4] for row in stats.rows] == [(topic, 0, 10, 100), (topic, 1, 1, 1)]
    assert tasks["stats"] == [(topic, 0), (topic, 0), (topic, 1)]
