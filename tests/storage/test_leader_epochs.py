"""Leader epochs: an append does not wait for their file, a flush takes it along."""

import pytest

from gregor.storage.clock import ManualClock
from gregor.storage.log_config import LogConfig
from gregor.storage.open_files import OpenFiles
from gregor.storage.partition_log import PartitionLog
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
def test_what_was_flushed_is_believed_after_a_power_cut(kept_unsynced_bytes: int) -> None:
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
def test_a_power_cut_before_the_flush_leaves_a_log_that_goes_on(kept_unsynced_bytes: int) -> None:
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
