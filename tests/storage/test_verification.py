"""`verify_partition` finds what is wrong and changes nothing."""

from pathlib import Path

import pytest

from gregor.storage.clock import ManualClock
from gregor.storage.files import OsFiles
from gregor.storage.log_config import LogConfig
from gregor.storage.partition_log import PartitionLog
from gregor.storage.verification import Finding, verify_partition
from tests.storage.payloads import append


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A closed log of several segments."""
    path = tmp_path / "topic-0"
    log = PartitionLog.open(str(path), LogConfig(segment_bytes=500, index_interval_bytes=50), ManualClock())
    for number in range(30):
        append(log, b"%d" % number)
    log.close()
    return path


def verify(directory: Path) -> list[Finding]:
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    findings = list(verify_partition(OsFiles(), str(directory)))
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before
    return findings


def test_a_good_log(directory: Path) -> None:
    assert verify(directory) == []


def test_progress_reaches_the_end(directory: Path) -> None:
    seen: list[tuple[int, int]] = []
    list(verify_partition(OsFiles(), str(directory), lambda done, total: seen.append((done, total))))
    assert seen[-1][0] == seen[-1][1] > 0


def test_a_flipped_bit(directory: Path) -> None:
    path = sorted(directory.glob("*.log"))[1]
    data = bytearray(path.read_bytes())
    data[30] ^= 1
    path.write_bytes(data)
    found = verify(directory)
    assert (found[0].path, found[0].position) == (str(path), 0)
    assert "CRC" in found[0].problem


@pytest.mark.parametrize("suffix", [".gindex", ".snapshot"])
def test_a_damaged_side_file(directory: Path, suffix: str) -> None:
    path = sorted(directory.glob(f"*{suffix}"))[1]
    data = bytearray(path.read_bytes())
    data[len(data) - 3] ^= 0x10
    path.write_bytes(data)
    assert [finding.path for finding in verify(directory)] == [str(path)]


def test_a_swapped_index(directory: Path) -> None:
    first, second, *_ = sorted(directory.glob("*.gindex"))
    first.write_bytes(second.read_bytes())
    assert [finding.path for finding in verify(directory)] == [str(first)]


def test_left_overs_and_orphans(directory: Path) -> None:
    (directory / "00000000000000000003.gindex").write_bytes(b"")
    (directory / "00000000000000000000.log.cleaned").write_bytes(b"")
    (directory / "00000000000000000000.txnindex").write_bytes(b"x" * 40)
    names = {Path(finding.path).name for finding in verify(directory)}
    assert names == {
        "00000000000000000003.gindex",
        "00000000000000000000.log.cleaned",
        "00000000000000000000.txnindex",
    }
