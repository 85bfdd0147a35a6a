"""The log that is compacted next, and the cleaner's checkpoint."""

import errno
import threading
from pathlib import Path

import pytest

from gregor.storage.clock import ManualClock
from gregor.storage.compaction.cleaner import RETRY_MS
from gregor.storage.compaction.compaction import CompactionLimits
from gregor.storage.disk.io_throttle import LONGEST_DELAY_S, IoThrottle
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log.partition_log import PartitionLog
from gregor.storage.log_manager import LogManager
from tests.storage.payloads import append, read_all

COMPACT = LogConfig(cleanup_policy="compact")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(10_000)


def open_logs(path: Path, clock: ManualClock) -> LogManager:
    logs = LogManager([str(path)], COMPACT, clock)
    logs.open_all()
    return logs


def write(log: PartitionLog, batches: int) -> None:
    for number in range(batches):
        append(log, b"%d" % number)
    log.roll()


def compact(logs: LogManager) -> PartitionLog | None:
    begun = logs.begin_compaction()
    if begun is None:
        return None
    begun.run()
    assert logs.cleaner.finish(begun)
    return begun.log


def test_the_dirtiest_log_is_compacted_first(tmp_path: Path, clock: ManualClock) -> None:
    logs = open_logs(tmp_path, clock)
    nearly_clean, dirty = logs.create("nearly-clean", 0), logs.create("dirty", 0)
    plain = logs.create("plain", 0, config=LogConfig(retention_ms=-1))
    for log in (nearly_clean, plain):
        write(log, 20)
    assert compact(logs) is nearly_clean
    for log in (nearly_clean, plain, dirty):
        write(log, 3)
    assert [compact(logs), compact(logs), compact(logs)] == [dirty, nearly_clean, None]
    assert len(read_all(plain)) == 23
    assert [len(read_all(log)) for log in (nearly_clean, dirty)] == [1, 1]
    logs.close()


def test_a_log_below_min_cleanable_dirty_ratio_waits_for_max_compaction_lag_ms(
    tmp_path: Path, clock: ManualClock
) -> None:
    logs = open_logs(tmp_path, clock)
    log = logs.create("topic", 0)
    for number in range(50):
        append(log, b"x" * 100, timestamp=number)
    log.roll()
    log.config = LogConfig(cleanup_policy="compact", min_cleanable_dirty_ratio=1.0)
    assert compact(logs) is None
    log.config = LogConfig(cleanup_policy="compact", min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=1000)
    assert compact(logs) is log
    logs.close()


def test_the_cleaner_checkpoint_survives_a_restart(tmp_path: Path, clock: ManualClock) -> None:
    logs = open_logs(tmp_path, clock)
    write(logs.create("topic", 0), 5)
    assert compact(logs) is not None
    assert (tmp_path / "cleaner-offset-checkpoint").read_text() == "0\n1\ntopic 0 5\n"
    logs.close()
    again = open_logs(tmp_path, clock)
    assert compact(again) is None
    again.close()


def test_the_compaction_of_a_deleted_log_is_interrupted(tmp_path: Path, clock: ManualClock) -> None:
    logs = open_logs(tmp_path, clock)
    write(logs.create("topic", 0), 5)
    begun = logs.begin_compaction()
    assert begun is not None
    logs.delete("topic", 0)
    with pytest.raises(InterruptedError) as caught:
        begun.run()
    logs.cleaner.fail(begun, caught.value)
    assert logs.begin_compaction() is None
    logs.close()


def test_a_compaction_that_failed_with_a_full_disk_is_retried(tmp_path: Path, clock: ManualClock) -> None:
    logs = open_logs(tmp_path, clock)
    log = logs.create("topic", 0)
    write(log, 5)
    begun = logs.begin_compaction()
    assert begun is not None
    logs.cleaner.fail(begun, OSError(errno.ENOSPC, "No space left on device"))
    (home,) = logs.directories
    assert logs.cleaner.uncleanable(home).partition_count == 1
    assert logs.begin_compaction() is None
    clock.advance(RETRY_MS)
    assert compact(logs) is log
    assert logs.cleaner.uncleanable(home).partition_count == 0
    assert len(read_all(log)) == 1
    logs.close()


def test_a_compaction_whose_swap_failed_leaves_no_files_and_is_retried(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = open_logs(tmp_path, clock)
    log = logs.create("topic", 0)
    write(log, 5)
    begun = logs.begin_compaction()
    assert begun is not None
    begun.run()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("gregor.storage.compaction.compaction.commit_swap", full)
        assert not logs.cleaner.finish(begun)
    assert not list((tmp_path / "topic-0").glob("*.cleaned"))
    clock.advance(RETRY_MS)
    assert compact(logs) is log
    logs.close()


def test_a_log_that_cannot_be_compacted_is_left_alone(tmp_path: Path, clock: ManualClock) -> None:
    logs = open_logs(tmp_path, clock)
    log = logs.create("topic", 0)
    write(log, 5)
    begun = logs.begin_compaction()
    assert begun is not None
    assert logs.begin_compaction() is None, "one at a time for each log"
    logs.cleaner.fail(begun, OSError("no space"))
    clock.advance(10 * RETRY_MS)
    assert logs.begin_compaction() is None
    assert len(read_all(log)) == 5
    assert not list((tmp_path / "topic-0").glob("*.cleaned"))
    logs.close()


def test_the_io_throttle_delays_a_compaction(tmp_path: Path, clock: ManualClock) -> None:
    throttle = IoThrottle(1000, now_s=lambda: 0.0)
    assert [throttle.delay_after(size_bytes) for size_bytes in (100, 100, 0)] == [0.1, 0.2, 0.0]
    assert throttle.delay_after(1 << 30) == LONGEST_DELAY_S
    logs = open_logs(tmp_path, clock)
    write(logs.create("topic", 0), 5)
    logs.cleaner.limits = CompactionLimits(throttle=IoThrottle(0.001))
    begun = logs.begin_compaction()
    assert begun is not None
    other = threading.Thread(target=begun.cancel)
    other.start()
    with pytest.raises(InterruptedError):
        begun.run()
    other.join()
    logs.close()
