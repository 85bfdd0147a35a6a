"""`verify_partition` finds damage and changes nothing."""

from collections.abc import Callable
from pathlib import Path
from struct import Struct

import pytest

from gregor.protocol.records import v2
from gregor.storage.clock import ManualClock
from gregor.storage.disk.files import OsFile
from gregor.storage.disk.read_only_files import ReadOnlyFiles
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log.partition_log import PartitionLog
from gregor.storage.recovery.verification import Finding, segment_bytes, verify_partition
from tests.storage.payloads import append


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a closed log of several segments."""
    path = tmp_path / "topic-0"
    log = PartitionLog.open(str(path), LogConfig(segment_bytes=500, index_interval_bytes=50), ManualClock())
    for number in range(30):
        append(log, b"%d" % number)
    log.close()
    return path


def verify(directory: Path) -> list[Finding]:
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    findings = list(verify_partition(ReadOnlyFiles(), str(directory)))
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before
    return findings


def test_an_intact_log_has_no_findings(directory: Path) -> None:
    assert verify(directory) == []


def test_progress_reaches_the_end(directory: Path) -> None:
    seen: list[int] = []
    list(verify_partition(ReadOnlyFiles(), str(directory), progress=seen.append))
    assert len(seen) >= 30, "the place of damage moves with each batch"
    assert sum(seen) == segment_bytes(ReadOnlyFiles(), str(directory)) > 0


def test_a_flipped_bit_in_a_segment_is_reported_as_a_crc_error(directory: Path) -> None:
    path = sorted(directory.glob("*.log"))[1]
    data = bytearray(path.read_bytes())
    data[30] ^= 1
    path.write_bytes(data)
    found = verify(directory)
    assert (found[0].path, found[0].position) == (str(path), 0)
    assert "CRC" in found[0].problem


@pytest.mark.parametrize("suffix", [".gindex", ".snapshot"])
def test_a_damaged_index_or_snapshot_is_reported(directory: Path, suffix: str) -> None:
    path = sorted(directory.glob(f"*{suffix}"))[1]
    data = bytearray(path.read_bytes())
    data[len(data) - 3] ^= 0x10
    path.write_bytes(data)
    assert [finding.path for finding in verify(directory)] == [str(path)]


def test_an_index_of_another_segment_is_reported(directory: Path) -> None:
    first, second, *_ = sorted(directory.glob("*.gindex"))
    first.write_bytes(second.read_bytes())
    assert [finding.path for finding in verify(directory)] == [str(first)]


def test_left_over_and_orphan_files_are_reported(directory: Path) -> None:
    (directory / "00000000000000000003.gindex").write_bytes(b"")
    (directory / "00000000000000000000.log.cleaned").write_bytes(b"")
    (directory / "00000000000000000000.txnindex").write_bytes(b"x" * 40)
    names = {Path(finding.path).name for finding in verify(directory)}
    assert names == {
        "00000000000000000003.gindex",
        "00000000000000000000.log.cleaned",
        "00000000000000000000.txnindex",
    }


def test_a_missing_segment_is_reported(directory: Path) -> None:
    missing = sorted(directory.glob("*.log"))[1]
    for path in (missing, missing.with_suffix(".gindex")):
        path.unlink()
    (found,) = verify(directory)
    assert (found.path, found.position) == (str(sorted(directory.glob("*.log"))[1]), None)
    assert "are missing between the segment before it and this one" in found.problem


def test_a_segment_under_the_name_of_a_later_one_is_reported(directory: Path) -> None:
    first, _, third, *_ = sorted(directory.glob("*.log"))
    third.write_bytes(first.read_bytes())
    assert verify(directory)[0].path == str(third)


def test_an_index_timestamp_below_that_of_its_batch_is_reported(directory: Path) -> None:
    log_path = sorted(directory.glob("*.log"))[1]
    data = bytearray(log_path.read_bytes())
    data[v2.MAX_TIMESTAMP_AT : v2.MAX_TIMESTAMP_AT + 8] = (10**9).to_bytes(8, "big")
    data[v2.CRC_AT : v2.CRC_AT + 4] = v2.batch_crc(data, 0, 12 + int.from_bytes(data[8:12], "big")).to_bytes(4, "big")
    log_path.write_bytes(data)
    (found,) = verify(directory)
    assert found.path == str(log_path.with_suffix(".gindex"))
    assert "is before a batch's timestamp" in found.problem


@pytest.mark.parametrize("name", ["leader-epoch-checkpoint", "partition.metadata"])
def test_garbage_in_leader_epoch_or_partition_metadata_files_is_reported(directory: Path, name: str) -> None:
    (directory / name).write_bytes(b"\xff\xfegarbage\n\n1 2 3")
    assert [finding.path for finding in verify(directory)] == [str(directory / name)]


def test_a_log_start_offset_beyond_the_log_end_is_reported(directory: Path) -> None:
    (found,) = verify_partition(ReadOnlyFiles(), str(directory), log_start_offset=31)
    assert "starts at offset 31, but the log ends at 30" in found.problem
    assert not list(verify_partition(ReadOnlyFiles(), str(directory), log_start_offset=30))


def test_with_a_running_broker_temporary_states_are_not_reported(directory: Path) -> None:
    active = max(directory.glob("*.log"))
    active.write_bytes(active.read_bytes()[:-3])
    active.with_suffix(".gindex").unlink()
    (directory / "00000000000000000000.log.deleted").write_bytes(b"")
    problems = [finding.problem for finding in verify_partition(ReadOnlyFiles(), str(directory), is_live=True)]
    assert problems == ["it is missing"]
    assert len(list(verify_partition(ReadOnlyFiles(), str(directory)))) == 3


@pytest.mark.parametrize("interval_bytes", [50, 4096])
def test_a_reopened_and_appended_log_has_no_findings(tmp_path: Path, interval_bytes: int) -> None:
    path = tmp_path / "topic-0"
    config = LogConfig(index_interval_bytes=interval_bytes)
    log = PartitionLog.open(str(path), config, ManualClock())
    append(log, b"before")
    log.close()
    again = PartitionLog.open(str(path), config, ManualClock(), is_clean=True)
    for number in range(3):
        append(again, b"%d" % number)
        assert list(verify_partition(ReadOnlyFiles(), str(path), is_live=True)) == []
    again.close()
    assert list(verify_partition(ReadOnlyFiles(), str(path))) == []


class VanishingFiles(ReadOnlyFiles):
    """A `Files` in which one file is deleted before it is opened."""

    __slots__ = ("gone",)

    def __init__(self, gone: str) -> None:
        self.gone = gone

    def open(self, path: str, *, create: bool = False) -> OsFile:
        if path == self.gone:
            raise FileNotFoundError(path)
        return super().open(path, create=create)


def test_with_a_running_broker_a_segment_removed_meanwhile_is_not_reported(directory: Path) -> None:
    files = VanishingFiles(str(min(directory.glob("*.log"))))
    assert list(verify_partition(files, str(directory), is_live=True)) == []
    with pytest.raises(FileNotFoundError):
        list(verify_partition(files, str(directory)))


def test_read_only_files_refuse_each_write(directory: Path) -> None:
    files = ReadOnlyFiles()
    path = str(min(directory.glob("*.log")))
    refused: list[Callable[[], object]] = [
        lambda: files.open(path, create=True),
        lambda: files.open(path).write_at(b"x", 0),
        lambda: files.open(path).truncate(0),
        lambda: files.replace(path, b""),
        lambda: files.make_directory(path + "x"),
        lambda: files.rename(path, path + "x"),
        lambda: files.remove(path),
        lambda: files.remove_tree(str(directory)),
        lambda: files.open(path).map_table(8).pack(Struct(">q"), 0, 1),
    ]
    for attempt in refused:
        with pytest.raises(OSError, match=r"Read-only|Bad file descriptor|Invalid argument"):
            attempt()
    assert verify(directory) == []
