"""Jobs whose process or broker is killed repeatedly: the output equals the input."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the pipeline needs gregor-broker[spark]")
pytest.importorskip("pyspark", reason="the pipeline needs gregor-broker[spark]")

from gregor.pipeline.archive import writing
from gregor.pipeline.archive.manifest import Manifest
from gregor.pipeline.jobs import generate as generate_job
from tests.broker_process import BrokerProcess, running_broker, wait_until_it_answers
from tests.pipeline.archive_rows import arguments, end_offsets, rows_of
from tests.pipeline.job_desk import run_job, run_tasks_once
from tests.pipeline.stored import contents, records_of

pytestmark = pytest.mark.peer

ROOT = Path(__file__).resolve().parents[2]
TOPIC = "precious"
RECORDS_A_KILL = 10_000
"""Number of records for which a job still runs at the last kill."""
PARTITIONS = 2
SMALL_ROUNDS = ("--max-bytes", "20000")
LIMIT_S = 900.0
OVERRIDES = ("offsets.topic.num.partitions=1", "transaction.state.log.num.partitions=1")


@pytest.fixture
def kills(pytestconfig: pytest.Config) -> int:
    """Return the number of kills."""
    return int(pytestconfig.getoption("--job-kills"))


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: int) -> Iterator[BrokerProcess]:
    """Provide a broker with a topic of compressed batches."""
    monkeypatch.setattr(generate_job, "run_tasks", run_tasks_once)
    with running_broker(tmp_path / "source", *OVERRIDES) as broker:
        command = ["--bootstrap-server", broker.bootstrap, "--topic", TOPIC, "--records", str(kills * RECORDS_A_KILL)]
        command += ["--partitions", str(PARTITIONS), "--value-bytes", "100", "--batch-records", "20", "--codec", "lz4"]
        run_job("generate", *command)
        yield broker


def start(name: str, *command: str) -> subprocess.Popen[bytes]:
    """Start the job as a process of its own."""
    return subprocess.Popen([sys.executable, "-m", "tests.pipeline.job_process", name, *command], cwd=ROOT)


def bytes_in(folder: Path) -> int:
    """Return the bytes of all files below a directory; 0 if one of them vanishes meanwhile."""
    try:
        return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    except FileNotFoundError:
        return 0


def run_killed(kills: int, output: Path | Callable[[], int], name: str, *command: str) -> int:
    """Run a job to its end, after some kills, each soon after the job has written below ``output``.

    ``output`` may be a function that counts what was written. Returns how many of the kills came before the job's end.
    """
    written = partial(bytes_in, output) if isinstance(output, Path) else output
    dice = random.Random(name)
    done = 0
    for _ in range(kills):
        before = written()
        process = start(name, *command)
        while process.poll() is None and written() == before:
            time.sleep(0.005)
        time.sleep(dice.uniform(0.0, 0.1))
        if process.poll() is None:
            process.kill()
            done += 1
        assert process.wait() in (0, -signal.SIGKILL)
    assert start(name, *command).wait(LIMIT_S) == 0
    print(f"{name}: was killed {done} times of {kills}")
    return done


def run_while_broker_dies(kills: int, broker: BrokerProcess, output: Path, name: str, *command: str) -> int:
    """Run a job to its end while its broker is killed some times, each soon after a write below ``output``.

    The broker starts again at once. Returns how many kills came before the job's end.
    """
    dice = random.Random(name)
    process = start(name, *command)
    restarts_s: list[float] = []
    for _ in range(kills):
        before = bytes_in(output)
        while process.poll() is None and bytes_in(output) == before:
            time.sleep(0.005)
        time.sleep(dice.uniform(0.0, 0.3))
        if process.poll() is not None:
            break
        broker.kill()
        began = time.monotonic()
        broker.respawn()
        wait_until_it_answers(broker)
        restarts_s.append(time.monotonic() - began)
    assert process.wait(LIMIT_S) == 0
    slowest_s = max(restarts_s, default=0)
    print(f"{name}: the broker was killed {len(restarts_s)} times of {kills}, and back within {slowest_s:.1f} s")
    return len(restarts_s)


def assert_archived(source: BrokerProcess, root: Path) -> None:
    """Check that the archive has every record once and no other files."""
    rows = rows_of(root)
    for partition in range(PARTITIONS):
        originals = records_of(source, TOPIC, partition)
        found = [row for row in rows if row["partition"] == partition]
        assert [(row["offset"], row["value"]) for row in found] == [(row["offset"], row["value"]) for row in originals]
    assert len(rows) == sum(end_offsets(source, TOPIC))
    assert set((root / "data").rglob("*.parquet")) == set(Manifest(root).files())


def assert_in_table(source: BrokerProcess, root: Path) -> None:
    """Check that the archive's table of Iceberg has every record once, and its folder no other files."""
    from pyiceberg.catalog.sql import SqlCatalog

    table = SqlCatalog("archive", uri=f"sqlite:///{root / 'catalog.db'}").load_table("archive.data")
    rows = table.scan().to_arrow().sort_by("offset").to_pylist()
    for partition in range(PARTITIONS):
        originals = records_of(source, TOPIC, partition)
        found = [row for row in rows if row["partition"] == partition]
        assert [(row["offset"], row["value"]) for row in found] == [(row["offset"], row["value"]) for row in originals]
    assert len(rows) == sum(end_offsets(source, TOPIC))
    named = {Path(task.file.file_path.removeprefix("file://")) for task in table.scan().plan_files()}
    assert set((root / "data").rglob("*.parquet")) == named


def assert_copied(source: BrokerProcess, target: BrokerProcess, topic: str) -> None:
    """Check that the copy has the same records in the same order, each once."""
    for partition in range(PARTITIONS):
        assert contents(records_of(target, topic, partition)) == contents(records_of(source, TOPIC, partition))


def test_an_archive_job_that_is_killed_archives_every_record_once(
    source: BrokerProcess, tmp_path: Path, kills: int
) -> None:
    root = tmp_path / "lake"
    command = arguments(source, TOPIC, root, *SMALL_ROUNDS)
    assert run_killed(kills, root, "archive", *command)
    assert_archived(source, root)


def test_an_iceberg_archive_job_that_is_killed_archives_every_record_once(
    source: BrokerProcess, tmp_path: Path, kills: int
) -> None:
    pytest.importorskip("pyiceberg", reason="archives in Iceberg need gregor-broker[iceberg]")
    root = tmp_path / "lake"
    # A commit of Iceberg takes some tens of milliseconds, so there are fewer commits.
    command = arguments(source, TOPIC, root, "--format", "iceberg", "--max-bytes", "100000")
    assert run_killed(kills, root, "archive", *command)
    assert_in_table(source, root)


def test_an_archive_job_whose_broker_is_killed_archives_every_record_once(
    source: BrokerProcess, tmp_path: Path, kills: int
) -> None:
    root = tmp_path / "lake"
    assert run_while_broker_dies(kills, source, root, "archive", *arguments(source, TOPIC, root, *SMALL_ROUNDS))
    assert_archived(source, root)


@pytest.mark.parametrize("dies", ["the job", "the broker"])
def test_a_replay_copies_every_record_once_after_the_job_or_broker_is_killed(
    source: BrokerProcess, tmp_path: Path, kills: int, dies: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "run_tasks", run_tasks_once)
    root = tmp_path / "lake"
    run_job("archive", *arguments(source, TOPIC, root))
    command = ["--bootstrap-server", source.bootstrap, "--archive", str(root), "--prefix", "again-"]
    if dies == "the job":
        assert run_killed(kills, source.directory / "logs", "replay", *command)
    else:
        assert run_while_broker_dies(kills, source, source.directory / "logs", "replay", *command)
    assert_copied(source, source, f"again-{TOPIC}")


@pytest.mark.parametrize("dies", ["the job", "the target"])
def test_a_mirror_copies_every_record_once_after_the_job_or_target_is_killed(
    source: BrokerProcess, tmp_path: Path, kills: int, dies: str
) -> None:
    with running_broker(tmp_path / "target", *OVERRIDES) as target:
        command = ["--from", source.bootstrap, "--to", target.bootstrap, "--topics", TOPIC]
        command += ["--transaction-bytes", "5000"]
        if dies == "the job":
            assert run_killed(kills, target.directory / "logs", "mirror", *command)
        else:
            assert run_while_broker_dies(kills, target, target.directory / "logs", "mirror", *command)
        assert_copied(source, target, TOPIC)


CORE_SITE = """<configuration>
<property><name>fs.s3a.connection.request.timeout</name><value>1s</value></property>
</configuration>"""
FAULTS = ("refuse", "lose", "slow down", "cut", "hang")


def test_batches_archived_in_s3_and_restored_are_exact_while_jobs_are_killed_and_the_store_fails(
    source: BrokerProcess, tmp_path: Path, kills: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some requests fail, lose their answer, are throttled, cut off or hang until the client gives up."""
    pytest.importorskip("obstore", reason="stores need gregor-broker[s3]: `make pipeline` installs it")
    pytest.importorskip("moto", reason="the S3 server of the tests needs gregor-broker[spark-test]")
    from tests.pipeline.s3_server import s3_server

    (tmp_path / "core-site.xml").write_text(CORE_SITE)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    dice = random.Random(1)

    def fault(request: dict[str, Any]) -> str | None:
        return dice.choice(FAULTS) if dice.random() < 0.04 else None

    with s3_server() as server, running_broker(tmp_path / "target", *OVERRIDES) as target:
        root = server.root()
        server.fault = fault

        def entries() -> int:
            return sum("/manifest/" in request and request.startswith("PUT") for request in list(server.requests))

        command = arguments(source, TOPIC, root, "--values", "batches", "--max-bytes", "60000")
        assert run_killed(kills, entries, "archive", *command)
        assert server.faults
        command = ["--archive", str(root), "--bootstrap-server", target.bootstrap]
        assert run_killed(2, target.directory / "logs", "restore", *command)
        assert_copied(source, target, TOPIC)
