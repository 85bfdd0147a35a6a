"""Whole log directories: which partitions are checked, their checkpoints, and whether a broker is at work there."""

import subprocess
import sys
from pathlib import Path

import pytest

from gregor.storage.clock import ManualClock
from gregor.storage.disk.read_only_files import ReadOnlyFiles
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log_manager import LogManager
from gregor.storage.recovery.directory_verification import find_partitions, is_in_use, total_bytes, verify_log_directory
from gregor.storage.recovery.verification import Finding
from tests.storage.payloads import append

FILES = ReadOnlyFiles()


def manager(directory: Path) -> LogManager:
    return LogManager([str(directory)], LogConfig(), ManualClock())


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a log directory with two partitions that was closed in order, and things that are not ours."""
    path = tmp_path / "logs-1"
    logs = manager(path)
    logs.open_all()
    for number in range(2):
        append(logs.create("topic", number), b"value")
    logs.close()
    (path / "lost+found").mkdir()
    (path / f"topic-7.{'0' * 32}-stray").mkdir()
    (path / "notes.txt").write_text("not ours")
    return path


def verify(directory: Path) -> list[Finding]:
    return list(verify_log_directory(FILES, find_partitions(FILES, str(directory))))


def test_all_partitions_of_an_intact_log_directory_have_no_findings(directory: Path) -> None:
    checked = find_partitions(FILES, str(directory))
    assert checked.partitions == [f"{directory}/topic-0", f"{directory}/topic-1"]
    assert not checked.is_live
    assert total_bytes(FILES, checked) == sum(path.stat().st_size for path in directory.glob("*/*.log")) > 0
    assert verify(directory) == []


def test_a_partition_directory_is_found_with_its_log_directory(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = find_partitions(FILES, str(directory / "topic-1"))
    assert (checked.log_directory, checked.partitions) == (str(directory), [f"{directory}/topic-1"])
    monkeypatch.chdir(directory / "topic-1")
    assert find_partitions(FILES, ".").log_directory == str(directory)


@pytest.mark.parametrize(
    "name",
    [
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "cleaner-offset-checkpoint",
        "meta.properties",
    ],
)
def test_garbage_in_a_checkpoint_or_meta_properties_is_reported(directory: Path, name: str) -> None:
    (directory / name).write_bytes(b"0\n3\ngarbage \xff\n")
    assert [finding.path for finding in verify(directory)] == [f"{directory}/{name}"]


def test_a_log_start_offset_beyond_the_log_end_is_reported(directory: Path) -> None:
    (directory / "log-start-offset-checkpoint").write_text("0\n1\ntopic 1 5\n")
    assert [finding.path for finding in verify(directory)] == [f"{directory}/topic-1"]


def test_an_open_log_directory_is_in_use_and_asking_takes_no_lock(directory: Path) -> None:
    # POSIX locks are a process's own, so the other broker must be another process.
    script = (
        "import sys; from gregor.storage.disk.log_directory import LogDirectory; "
        "from gregor.storage.disk.files import OsFiles; "
        "LogDirectory(OsFiles(), sys.argv[1]).open(node_id=1, cluster_id=None); print('open', flush=True); "
        "sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(directory)]
    assert not is_in_use(str(directory))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as broker:
        assert broker.stdout is not None
        assert broker.stdout.readline() == b"open\n"
        assert is_in_use(str(directory))
        assert find_partitions(FILES, str(directory / "topic-0")).is_live
        broker.communicate()
    assert not is_in_use(str(directory))
    logs = manager(directory)
    logs.open_all()
    logs.close()
