"""Jobs in Spark itself: tasks that fail once, conditions in SQL, and a driver that is killed with its tasks alive."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the pipeline needs gregor[spark]")
pytest.importorskip("pyspark", reason="the pipeline needs gregor[spark]")

from gregor.pipeline.archive import writing
from gregor.pipeline.archive.manifest import Manifest
from gregor.pipeline.jobs import generate as generate_job
from gregor.pipeline.jobs.desk import Summary
from tests.broker_process import GREGOR, BrokerProcess
from tests.pipeline.archive_rows import arguments, make_topic, produce, rows_of
from tests.pipeline.job_desk import run_job, run_tasks_once
from tests.pipeline.stored import records_of

pytestmark = pytest.mark.peer

KILLED_AFTER_ROUNDS = 3
LIMIT_S = 300.0


def failing_once(work: Callable[[Any], Any], folder: Path) -> Callable[[Any], Any]:
    """The same work, whose first attempt at each piece fails after it was done."""

    def attempt(piece: Any) -> Any:
        done = work(piece)
        with contextlib.suppress(FileExistsError):
            os.close(os.open(folder / f"{piece.source.covers}", os.O_CREAT | os.O_EXCL))
            raise RuntimeError("the first attempt fails")
        return done

    return attempt


def test_a_task_that_fails_once_changes_nothing(
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


def test_a_replay_of_what_a_condition_chooses(
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


def test_a_driver_that_is_killed(
    broker_process: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generate_job, "run_tasks", run_tasks_once)
    topic = ["--bootstrap-server", broker_process.bootstrap, "--topic", "driven", "--partitions", "2"]
    run_job("generate", *topic, "--records", "4000", "--value-bytes", "100", "--batch-records", "20")
    root = tmp_path / "lake"
    command = [sys.executable, *GREGOR, "pipeline", "archive", "--master", "local[2]"]
    command += arguments(broker_process, "driven", root, "--max-bytes", "20000")
    driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + LIMIT_S
    while len(list((root / "manifest").glob("*.json"))) < KILLED_AFTER_ROUNDS:
        assert driver.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    driver.kill()
    driver.wait()
    assert len(rows_of(root)) < 4000
    assert subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0
    rows = rows_of(root)
    assert [(row["partition"], row["offset"]) for row in rows] == [(p, o) for p in (0, 1) for o in range(2000)]
    assert set((root / "data").rglob("*.parquet")) == set(Manifest(root).files())
