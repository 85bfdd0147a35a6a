"""Wrong names and paths: each is an error that names it, and creates nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the pipeline needs gregor-broker[spark]")
pytest.importorskip("pyspark", reason="the pipeline needs gregor-broker[spark]")

from gregor.pipeline.archive import writing
from gregor.pipeline.archive.manifest import Manifest
from gregor.pipeline.errors import OptionError, PipelineError
from gregor.pipeline.jobs import passes
from gregor.pipeline.jobs import replay as replay_job
from gregor.pipeline.local_paths import local_path
from gregor.pipeline.logs.kafka_log import KNOWN_OPTIONS as KNOWN_LOG_OPTIONS
from gregor.pipeline.logs.kafka_log import KafkaLogReader
from gregor.pipeline.options import SourceOptions
from tests.broker_process import BrokerProcess
from tests.pipeline.archive_rows import arguments, make_topic, produce, rows_of
from tests.pipeline.job_desk import run_job, run_tasks_here
from tests.pipeline.stored import records_of
from tests.pipeline.topics import delete_topic


@pytest.fixture(autouse=True)
def _tasks_here(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (writing, passes, replay_job):
        monkeypatch.setattr(module, "run_tasks", run_tasks_here)


@pytest.fixture(scope="module")
def logs(broker_process: BrokerProcess) -> str:
    """Return a log directory with the topic `there`."""
    make_topic(broker_process, "there", 1)
    produce(broker_process, "there", [b"1", b"2"], 1)
    return str(broker_process.directory / "logs")


# --- topics ---


@pytest.mark.parametrize("name", ["ther", "no-*"])
def test_a_topic_that_is_in_no_log_directory_is_an_error(logs: str, tmp_path: Path, name: str) -> None:
    jobs: dict[str, list[str]] = {
        "backfill": ["--archive", str(tmp_path / "lake")],
        "stats": [],
        "audit": [],
        "convert": ["--to-log-dir", str(tmp_path / "converted"), "--to-format", "1"],
    }
    for job, more in jobs.items():
        with pytest.raises(OptionError, match=rf"no topic {name.replace('*', '.')} in .*logs"):
            run_job(job, "--log-dir", logs, "--topics", name, *more)
    assert not (tmp_path / "lake" / "data").exists()
    assert not (tmp_path / "converted").exists()


@pytest.mark.parametrize("job", ["archive", "stats", "audit"])
def test_a_topic_that_no_broker_has_is_an_error(broker_process: BrokerProcess, tmp_path: Path, job: str) -> None:
    more = ["--archive", str(tmp_path / "lake")] if job == "archive" else []
    with pytest.raises(PipelineError, match="topic ther does not exist at 127"):
        run_job(job, "--bootstrap-server", broker_process.bootstrap, "--topics", "ther", *more)


def test_a_partition_that_is_in_no_log_directory_is_an_error(logs: str) -> None:
    def read(assign: str) -> int:
        return len(KafkaLogReader(SourceOptions({"path": logs, "assign": assign}, KNOWN_LOG_OPTIONS)).partitions())

    assert read('{"there": [0]}') == 1
    for assign in ('{"there": [0, 1]}', '{"ther": [1]}'):
        with pytest.raises(OptionError, match=r"assign: no partition ther.*-1 in .*logs"):
            read(assign)


def test_an_archive_is_not_replayed_into_the_topic_that_it_was_made_of(
    broker_process: BrokerProcess, tmp_path: Path
) -> None:
    make_topic(broker_process, "itself", 1)
    produce(broker_process, "itself", [b"1", b"2"], 1)
    run_job("archive", *arguments(broker_process, "itself", tmp_path))
    command = ["--archive", str(tmp_path), "--bootstrap-server", broker_process.bootstrap]
    with pytest.raises(PipelineError, match=r"itself is the source of the archive: .* --prefix"):
        run_job("replay", *command)
    assert len(records_of(broker_process, "itself", 0)) == 2
    delete_topic(broker_process.bootstrap, "itself")
    run_job("replay", *command)
    assert len(records_of(broker_process, "itself", 0)) == 2


# --- paths ---


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("lake", "lake"),
        ("/a/lake", "/a/lake"),
        ("./s3a:/lake", "s3a:/lake"),
        ("c:lake", "c:lake"),
        ("file:/a/lake", "/a/lake"),
        ("file:///a/b%20c", "/a/b c"),
        ("FILE://localhost/a", "/a"),
    ],
)
def test_local_paths_and_file_uris_are_parsed(text: str, path: str) -> None:
    assert local_path(text) == Path(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("s3a://bucket/lake", "s3a://bucket/lake: s3a is not supported: a path of this machine, or file:///path"),
        ("hdfs:/lake", "hdfs is not supported"),
        ("abfss://a@b.c/lake", "abfss is not supported"),
        ("file://lake/x", "is on the host lake: write file:///path"),
        ("file:///a?b", "has no query"),
    ],
)
def test_uris_of_other_file_systems_and_hosts_are_refused(text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        local_path(text)


def test_jobs_take_uris_of_files_and_refuse_others(
    broker_process: BrokerProcess, logs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    where = ["--bootstrap-server", broker_process.bootstrap, "--topics", "there"]
    plain = ["--format", "parquet"]
    run_job("archive", *where, *plain, "--archive", f"file://{tmp_path}/lake")
    assert len(rows_of(tmp_path / "lake")) == 2
    run_job("backfill", "--log-dir", f"file:{logs}", "--topics", "there", *plain, "--archive", f"file:{tmp_path}/again")
    assert len(rows_of(tmp_path / "again")) == 2
    refused: list[Callable[[], Any]] = [
        lambda: run_job("archive", *where, "--archive", "ftp://bucket/lake"),
        lambda: run_job("backfill", "--log-dir", "hdfs:///logs", "--archive", "lake"),
        lambda: run_job("stats", *where, "--html", "http://bucket/page.html"),
        lambda: run_job("audit", *where, "--against-archive", "dbfs:/lake"),
    ]
    for attempt in refused:
        with pytest.raises(SystemExit):
            attempt()
        assert "is not supported: a path of this machine" in capsys.readouterr().err.splitlines()[-1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "lake"]
    assert Manifest(tmp_path / "lake").next_number == 1
