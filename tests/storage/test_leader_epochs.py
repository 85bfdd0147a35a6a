"""Leader epochs: an append does not wait for their file, and a flush also syncs that file."""

import pytest

from gregor.storage.clock import ManualClock
from gregor.storage.disk.open_files import OpenFiles
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log.partition_log import PartitionLog
from tests.storage.forgetful_files import ForgetfulFiles
from tests.storage.payloads import payload, read_all, values_of

DIRECTORY = "/logs/topic-0"


def open_log(files: ForgetfulFiles) -> PartitionLog:
    return PartitionLog.open(DIRECTORY, LogConfig(), ManualClock(1000), pool=OpenFiles(files))


def test_the_first_record_of_an_epoch_does_not_wait_for_the_disk() -> None:
    files = ForgetfulFiles()
    log = open_log(files)
    files.fail("sync")
    log.append(payload([b"a"]), leader_epoch=4)
    assert log.leader_epoch == 4


@pytest.mark.parametrize("kept_unsynced_bytes", [0, 10, 1 << 20])
def test_flushed_leader_epochs_survive_a_power_cut(kept_unsynced_bytes: int) -> None:
    files = ForgetfulFiles()
    log = open_log(files)
    log.append(payload([b"a"]), leader_epoch=4)
    log.flush()
    log.append(payload([b"b"]), leader_epoch=7)
    log.flush()
    files.cut_power(kept_unsynced_bytes=kept_unsynced_bytes)
    log = open_log(files)
    assert values_of(read_all(log)) == [b"a", b"b"]
    assert (log.leader_epoch, log.end_offset_for_epoch(5)) == (7, (4, 1))


@pytest.mark.parametrize("kept_unsynced_bytes", [0, 10, 1 << 20])
def test_a_log_is_usable_after_a_power_cut_before_the_flush(kept_unsynced_bytes: int) -> None:
    files = ForgetfulFiles()
    log = open_log(files)
    log.append(payload([b"a"]), leader_epoch=4)
    log.flush()
    log.append(payload([b"b"]), leader_epoch=7)
    files.cut_power(kept_unsynced_bytes=kept_unsynced_bytes)
    log = open_log(files)
    assert values_of(read_all(log))[0] == b"a"
    log.append(payload([b"c"]), leader_epoch=8)
    assert log.leader_epoch == 8


@pytest.mark.parametrize("epoch", [-2, -1, 0, 5])
def test_an_empty_log_has_no_end_offset_for_any_leader_epoch(epoch: int) -> None:
    assert open_log(ForgetfulFiles()).end_offset_for_epoch(epoch) == (-1, -1)


@pytest.mark.parametrize(
    ("epoch", "found"),
    [(-2, (-2, 0)), (-1, (-1, -1)), (3, (3, 0)), (4, (4, 1)), (6, (4, 1)), (7, (7, 2)), (8, (-1, -1))],
)
def test_the_end_offset_of_each_leader_epoch(epoch: int, found: tuple[int, int]) -> None:
    log = open_log(ForgetfulFiles())
    log.append(payload([b"a"]), leader_epoch=4)
    log.append(payload([b"b"]), leader_epoch=7)
    assert log.end_offset_for_epoch(epoch) == found
