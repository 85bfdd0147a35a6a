"""The space of deleted records is freed, and the segment stays readable for any reader."""

import os
from pathlib import Path

import pytest

from gregor.protocol.records.batches import read_batch
from gregor.storage.clock import ManualClock
from gregor.storage.disk.files import OsFiles
from gregor.storage.disk.open_files import OpenFiles
from gregor.storage.log.head_space import due_reclaiming
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log.partition_log import PartitionLog
from tests.storage.forgetful_files import Crashing, ForgetfulFiles
from tests.storage.payloads import append, read_all, values_of

VALUE = b"x" * 100_000
BATCHES = 40


def fill(log: PartitionLog, *, magic: int = 2) -> None:
    for number in range(BATCHES):
        append(log, b"%d " % number + VALUE, timestamp=1000 + number, magic=magic)


def numbers(log: PartitionLog) -> list[int]:
    return [int((value or b"").split()[0]) for value in values_of(read_all(log))]


@pytest.mark.parametrize("is_finished", [False, True])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_the_disk_space_of_deleted_records_is_freed(tmp_path: Path, magic: int, is_finished: bool) -> None:
    directory = tmp_path / "topic-0"
    log = PartitionLog.open(str(directory), LogConfig(), ManualClock(1000))
    fill(log, magic=magic)
    if is_finished:
        log.roll()
        append(log, b"40 ", timestamp=1040)
    log.flush()
    path = log.segments[0].path
    allocated = os.stat(path).st_blocks
    log.advance_log_start(30)
    reclaim = due_reclaiming(log, OsFiles())
    assert reclaim is not None
    reclaim()
    assert os.stat(path).st_blocks < allocated / 2
    assert due_reclaiming(log, OsFiles()) is None, "the space is freed once"
    expected = list(range(30, BATCHES + is_finished))
    assert numbers(log) == expected
    found = log.offset_for_timestamp(1000)
    assert found is not None
    assert found.offset == 30
    for is_clean in (False, True):
        log.close() if is_clean else log.abandon()
        log = PartitionLog.open(str(directory), LogConfig(), ManualClock(1000), log_start_offset=30, is_clean=is_clean)
        assert numbers(log) == expected
        assert log.log_end_offset == BATCHES + is_finished
    log.close()


def test_a_reclaimed_head_is_an_empty_batch_over_the_old_offsets(tmp_path: Path) -> None:
    log = PartitionLog.open(str(tmp_path / "topic-0"), LogConfig(), ManualClock(1000))
    fill(log)
    log.advance_log_start(30)
    reclaim = due_reclaiming(log, OsFiles())
    assert reclaim is not None
    reclaim()
    head = read_batch(Path(log.segments[0].path).read_bytes())
    assert head is not None
    assert head.crc_is_valid
    assert (head.base_offset, head.last_offset, head.record_count) == (0, 29, 0)
    log.close()


def test_head_space_is_not_reclaimed_while_a_reader_holds_a_slice(tmp_path: Path) -> None:
    log = PartitionLog.open(str(tmp_path / "topic-0"), LogConfig(), ManualClock(1000))
    fill(log)
    held = log.read(0, 1000)
    log.advance_log_start(30)
    assert due_reclaiming(log, OsFiles()) is None
    held.release()
    assert due_reclaiming(log, OsFiles()) is not None
    log.close()


def test_a_small_head_is_not_reclaimed() -> None:
    files = ForgetfulFiles()
    log = PartitionLog.open("/logs/topic-0", LogConfig(), ManualClock(1000), pool=OpenFiles(files))
    fill(log)
    log.advance_log_start(5)
    assert due_reclaiming(log, files) is None


def test_a_crash_during_head_reclaiming_loses_no_records() -> None:
    for point in range(50):
        files = Crashing()
        log = PartitionLog.open("/logs/topic-0", LogConfig(), ManualClock(1000), pool=OpenFiles(files))
        fill(log)
        log.advance_log_start(30)
        reclaim = due_reclaiming(log, files)
        assert reclaim is not None
        files.steps_to_live = point
        try:
            reclaim()
        except KeyboardInterrupt:
            files.steps_to_live = None
            again = PartitionLog.open(
                "/logs/topic-0", LogConfig(), ManualClock(1000), pool=OpenFiles(files), log_start_offset=30
            )
            assert numbers(again) == list(range(30, BATCHES)), f"crash point {point}"
            assert not [path for path in files.nodes if path.endswith(".reclaim")]
        else:
            assert point > 3
            return
    pytest.fail("it never came to its end")
