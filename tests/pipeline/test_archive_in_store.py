"""Archives in a store: S3, by a server in this process, whose requests fail, and whose writers die or are too slow."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the pipeline needs gregor-broker[spark]")
pytest.importorskip("obstore", reason="stores need gregor-broker[s3]: `make pipeline` installs it")
pytest.importorskip("moto", reason="the S3 server of the tests needs gregor-broker[spark-test]")

from gregor.pipeline.archive import compaction, manifest, store_lease, writing
from gregor.pipeline.archive.manifest import Manifest, ManifestError
from gregor.pipeline.archive.row_table import ParquetFiles
from gregor.pipeline.archive.store_lease import StoreLease
from gregor.pipeline.filesystems import retries
from gregor.pipeline.filesystems.files import files_below
from gregor.pipeline.filesystems.remote_path import RemotePath
from gregor.pipeline.filesystems.stores import StoreError
from gregor.pipeline.jobs import audit as audit_job
from gregor.pipeline.jobs import replay as replay_job
from gregor.pipeline.jobs import restore as restore_job
from tests.broker_process import BrokerProcess
from tests.pipeline.archive_rows import arguments, make_topic, produce, rows_of
from tests.pipeline.job_desk import run_job, run_tasks_once
from tests.pipeline.s3_server import S3Server, s3_server


@pytest.fixture(scope="module")
def running_server() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def server(running_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """Provide a server without faults; jobs run their tasks here."""
    monkeypatch.setattr(retries, "PAUSES_S", (0.0,) * 6)
    for module in (writing, compaction, audit_job, replay_job, restore_job):
        monkeypatch.setattr(module, "run_tasks", run_tasks_once)
    yield running_server
    running_server.fault = lambda request: None


def expected(count: int) -> list[tuple[int, int]]:
    return [(partition, offset) for partition in (0, 1) for offset in range(count)]


def assert_whole(root: RemotePath, count: int) -> None:
    """Check that the archive has the records of both partitions once, and no other files."""
    assert [(row["partition"], row["offset"]) for row in rows_of(root)] == expected(count)
    assert list(files_below(root / "data")) == sorted(Manifest(root).files())
    assert not files_below(root / "staged")


def test_a_topic_is_archived_in_s3_compacted_audited_and_replayed(
    server: S3Server, broker_process: BrokerProcess
) -> None:
    make_topic(broker_process, "stored")
    produce(broker_process, "stored", [b"v%d" % number for number in range(100)])
    root = server.root("there and back")
    command = arguments(broker_process, "stored", root, "--max-bytes", "1500")
    assert [row[4] for row in run_job("archive", *command)[0].rows] == [50, 50]
    assert_whole(root, 50)
    files = len(Manifest(root).files())
    produce(broker_process, "stored", [b"w%d" % number for number in range(20)])
    assert [row[2:5] for row in run_job("archive", *command, "--compact")[0].rows] == [(50, 60, 10), (50, 60, 10)]
    assert_whole(root, 60)
    assert len(Manifest(root).files()) < files
    broker = ["--bootstrap-server", broker_process.bootstrap]
    audit, _ = run_job("audit", "--archive", str(root), "--against-bootstrap-server", broker_process.bootstrap)
    assert audit.is_clean
    assert [row[-1] for row in audit.rows if row[0] == "stored"] == ["the same", "the same"]
    replayed, _ = run_job("replay", "--archive", str(root), *broker, "--prefix", "again-")
    assert replayed.rows == [("again-stored", 0, 0, 60), ("again-stored", 1, 0, 60)]


def test_batches_are_restored_from_a_store(server: S3Server, broker_process: BrokerProcess) -> None:
    make_topic(broker_process, "exact")
    produce(broker_process, "exact", [b"v%d" % number for number in range(40)])
    root = server.root("batches")
    run_job("archive", *arguments(broker_process, "exact", root, "--values", "batches"))
    restored, _ = run_job(
        "restore", "--archive", str(root), "--bootstrap-server", broker_process.bootstrap, "--prefix", "restored-"
    )
    assert [row[:4] for row in restored.rows] == [("restored-exact", 0, 0, 20), ("restored-exact", 1, 0, 20)]


def test_statistics_are_written_to_a_store(server: S3Server, broker_process: BrokerProcess, tmp_path: Any) -> None:
    pytest.importorskip("plotly")
    from gregor.pipeline.jobs import passes

    make_topic(broker_process, "counted")
    produce(broker_process, "counted", [b"v"] * 10)
    root = server.root("statistics")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passes, "run_tasks", run_tasks_once)
        command = ["--bootstrap-server", broker_process.bootstrap, "--topics", "counted"]
        run_job("stats", *command, "--parquet", f"{root}/table.parquet", "--html", f"{root}/page.html")
    assert b"plotly" in (root / "page.html").read_bytes()
    assert (root / "table.parquet").stat().st_size > 100


@pytest.mark.parametrize("seed", range(3))
def test_failed_s3_requests_and_lost_responses_neither_lose_nor_duplicate_records(
    server: S3Server, broker_process: BrokerProcess, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Every fifth request fails, or its answer is lost; a run that gives up is followed by another."""
    monkeypatch.setattr(manifest, "CHECKPOINT_ENTRIES", 3)
    topic = f"failing-{seed}"
    make_topic(broker_process, topic)
    produce(broker_process, topic, [b"v%d" % number for number in range(60)], batch_size=200)
    root = server.root(topic)
    dice = random.Random(seed)
    faults = ["refuse", "lose", "slow down"]
    server.fault = lambda request: dice.choice(faults) if dice.random() < 0.2 else None
    run_until_it_succeeds("archive", *arguments(broker_process, topic, root, "--max-bytes", "1500", "--compact"))
    server.fault = lambda request: None
    run_job("archive", *arguments(broker_process, topic, root))
    assert server.faults > 10
    assert_whole(root, 30)


def run_until_it_succeeds(*command: str) -> None:
    for _ in range(20):
        try:
            run_job(*command)
        except StoreError:
            continue
        return
    raise AssertionError("it never succeeds")


class CrashError(Exception):
    """An error at the point where the driver is killed."""


STEPS: dict[str, tuple[Any, str, bool]] = {
    "before it is decided": (Manifest, "stage", False),
    "after it is decided": (Manifest, "stage", True),
    "before its files are moved": (ParquetFiles, "publish", False),
    "after its files are moved": (ParquetFiles, "publish", True),
    "before it counts": (Manifest, "count", False),
    "after it counts": (Manifest, "count", True),
    "while it is swept": (ParquetFiles, "sweep", False),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_crash_at_each_step_loses_and_doubles_no_records(
    server: S3Server, broker_process: BrokerProcess, step: str
) -> None:
    owner, name, is_after = STEPS[step]
    work: Callable[..., Any] = getattr(owner, name)
    topic = "dying-" + step.replace(" ", "-")
    make_topic(broker_process, topic)
    produce(broker_process, topic, [b"v%d" % number for number in range(60)], batch_size=200)
    root = server.root(topic)
    command = arguments(broker_process, topic, root, "--max-bytes", "1500")

    def crash(*given: Any, **named: Any) -> None:
        if is_after:
            work(*given, **named)
        raise CrashError

    for _ in range(3):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(owner, name, crash)
            with pytest.raises(CrashError):
                run_job("archive", *command)
    run_job("archive", *command)
    assert_whole(root, 30)


@pytest.mark.parametrize("step", list(STEPS)[:6])
def test_a_writer_whose_lease_was_taken_over_changes_nothing(
    server: S3Server, broker_process: BrokerProcess, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """At any step another process takes the archive over and completes it; then the slow writer goes on."""
    owner, name, is_after = STEPS[step]
    work: Callable[..., Any] = getattr(owner, name)
    topic = "slow-" + step.replace(" ", "-")
    make_topic(broker_process, topic)
    produce(broker_process, topic, [b"v%d" % number for number in range(60)], batch_size=200)
    root = server.root(topic)
    command = arguments(broker_process, topic, root, "--max-bytes", "1500")
    monkeypatch.setattr(store_lease, "LEASE_S", 0.1)
    monkeypatch.setattr(store_lease, "LOOK_EVERY_S", 0.05)
    monkeypatch.setattr(manifest, "CHECKPOINT_ENTRIES", 2)
    calls = []

    def be_slow(*given: Any, **named: Any) -> Any:
        calls.append(name)
        if len(calls) != 2:
            return work(*given, **named)
        done = work(*given, **named) if is_after else None
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store_lease, "_machine", lambda: "another")
            run_job("archive", *command, "--compact")
        return done if is_after else work(*given, **named)

    monkeypatch.setattr(owner, name, be_slow)
    with pytest.raises((ManifestError, FileExistsError)):
        run_job("archive", *command)
    run_job("archive", *command)
    assert_whole(root, 30)


def test_a_second_writer_is_refused(server: S3Server, broker_process: BrokerProcess) -> None:
    make_topic(broker_process, "busy")
    root = server.root("busy")
    with StoreLease(root, print), pytest.raises(ManifestError, match="is held by process"):
        run_job("archive", *arguments(broker_process, "busy", root))
