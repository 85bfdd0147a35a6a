"""A log directory whose fsync has failed is not used any more; one that refuses writes is used, and recovers."""

import errno
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from gregor.broker.faults.disk import DiskPlace, FaultyFiles
from gregor.broker.faults.rule import DiskOperation
from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.storage.clock import ManualClock
from gregor.storage.disk.files import OsFiles
from gregor.storage.disk.open_files import OpenFiles
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log.partition_log import PartitionLog
from gregor.storage.log_manager import LogManager
from tests.storage.forgetful_files import ForgetfulFiles
from tests.storage.payloads import append, payload, read_all, values_of

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"


class Disk:
    """A disk with faults by operation and, optionally, topic, over real files."""

    def __init__(self) -> None:
        self.faults: dict[tuple[DiskOperation, str | None], int] = {}
        self.files = FaultyFiles(OsFiles(), self._strike)

    def fail(self, operation: DiskOperation, code: int, topic: str | None = None) -> None:
        self.faults[operation, topic] = code

    def heal(self) -> None:
        self.faults.clear()

    def _strike(self, operation: DiskOperation, place: DiskPlace) -> None:
        for topic in (None, place.topic):
            if (operation, topic) in self.faults:
                raise OSError(self.faults[operation, topic], "injected")


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def logs(tmp_path: Path, disk: Disk) -> Iterator[LogManager]:
    """Provide a manager of two log directories with one log in each: `first-0` and `second-0`."""
    manager = open_logs(tmp_path, disk)
    for topic in ("first", "second"):
        append(manager.create(topic, 0), b"one")
    yield manager
    disk.heal()
    manager.close()


def open_logs(path: Path, disk: Disk) -> LogManager:
    settings = LogConfig(retention_ms=-1)
    manager = LogManager([f"{path}/a", f"{path}/b"], settings, ManualClock(10_000), files=disk.files)
    manager.open_all()
    return manager


def the_log(logs: LogManager, topic: str) -> PartitionLog:
    log = logs.get(topic, 0)
    assert log is not None
    return log


def is_refused(log: PartitionLog, value: bytes = b"lost") -> bool:
    try:
        append(log, value)
    except BrokerError as error:
        return error.code is ErrorCode.KAFKA_STORAGE_ERROR
    return False


# --- failed


def test_after_a_failed_fsync_nothing_is_written_or_read(logs: LogManager, disk: Disk) -> None:
    log = the_log(logs, "first")
    log.config = LogConfig(flush_messages=1)
    disk.fail(DiskOperation.FSYNC, errno.EIO, "first")
    assert is_refused(log)
    size_bytes = Path(log.segments[0].path).stat().st_size
    disk.heal()
    assert [is_refused(log) for _ in range(3)] == [True] * 3
    with pytest.raises(BrokerError):
        log.append_as_follower(b"")
    assert Path(log.segments[0].path).stat().st_size == size_bytes
    for ask in (lambda: log.read(0, 100), log.flush, log.max_timestamp_offset, lambda: log.truncate_to(0)):
        with pytest.raises(BrokerError) as caught:
            ask()
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_duplicate_of_a_batch_whose_fsync_failed_is_kafka_storage_error(logs: LogManager, disk: Disk) -> None:
    log = the_log(logs, "first")
    log.config = LogConfig(flush_messages=1)
    batch = [b"x"]
    disk.fail(DiskOperation.FSYNC, errno.EIO, "first")
    for _ in range(3):
        with pytest.raises(BrokerError) as caught:
            log.append(payload(batch, producer_id=7, producer_epoch=0, base_sequence=0), leader_epoch=0)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_the_recovery_point_does_not_pass_pages_that_may_be_gone(logs: LogManager, disk: Disk) -> None:
    log = the_log(logs, "first")
    log.config = LogConfig(flush_ms=0)
    disk.fail(DiskOperation.FSYNC, errno.ENOSPC, "first")
    flushes = [log.due_flush(10_000) for _ in range(2)]
    assert flushes[0] is not None
    assert flushes[1] is not None
    with pytest.raises(OSError, match="injected"):
        flushes[0]()
    disk.heal()
    flushes[1]()
    assert log.recovery_point == 0
    assert log.due_flush(20_000) is None


def test_other_directories_go_on(logs: LogManager, disk: Disk, tmp_path: Path) -> None:
    changes: list[list[object]] = []
    logs.health.on_health_change = lambda: changes.append(list(logs.health.failed_ids()))
    first, second = the_log(logs, "first"), the_log(logs, "second")
    disk.fail(DiskOperation.FSYNC, errno.EIO, "first")
    with pytest.raises(BrokerError):
        first.flush()
    failed = logs.directory_of("first", 0)
    assert failed is not None
    assert changes == [[failed.directory_id]]
    assert [str(name) for name in logs.drop_failed(failed)] == ["first-0"]
    assert logs.get("first", 0) is None
    assert append(second, b"two") == 1
    new = logs.create("third", 0)
    assert new.directory.startswith(str(tmp_path / "b"))
    disk.heal()
    before = {path: path.read_bytes() for path in (tmp_path / "a").rglob("*") if path.is_file()}
    logs.close()
    assert {path: path.read_bytes() for path in (tmp_path / "a").rglob("*") if path.is_file()} == before
    assert not (tmp_path / "a" / CLEAN_SHUTDOWN).exists()
    assert (tmp_path / "b" / CLEAN_SHUTDOWN).exists()


def test_a_failed_fsync_of_a_checkpoint_fails_its_log_directory(logs: LogManager, disk: Disk) -> None:
    disk.fail(DiskOperation.FSYNC, errno.EIO)
    for step in logs.maintenance.due_checkpoints():
        step()
    assert len(logs.health.failed_ids()) == 2


def test_a_flush_that_meets_a_truncation_advances_the_recovery_point_only_to_it(tmp_path: Path) -> None:
    log = PartitionLog.open(str(tmp_path / "t-0"), LogConfig(flush_ms=0), ManualClock(10_000))
    for value in range(10):
        append(log, b"%d" % value)
    flush = log.due_flush(10_000)
    assert flush is not None
    log.truncate_to(4)
    for value in range(10):
        append(log, b"again %d" % value)
    flush()
    assert log.recovery_point == 4
    log.close()


def test_a_failed_flush_releases_its_segment_files(logs: LogManager, disk: Disk) -> None:
    log = the_log(logs, "first")
    append(log, b"two")
    log.roll()
    append(log, b"three")
    disk.fail(DiskOperation.FSYNC, errno.EIO, "first")
    with pytest.raises(BrokerError):
        log.flush()
    assert not any(segment.file.is_held for segment in log.segments)


def test_the_topics_id_is_on_the_disk_before_its_records() -> None:
    files = ForgetfulFiles()
    log = PartitionLog.open("/logs/t-0", LogConfig(), ManualClock(), pool=OpenFiles(files))
    log.note_topic_id(topic_id := uuid.uuid4())
    append(log, b"one")
    log.flush()
    files.cut_power()
    again = PartitionLog.open("/logs/t-0", LogConfig(), ManualClock(), pool=OpenFiles(files))
    assert again.topic_id == topic_id
    assert values_of(read_all(again)) == [b"one"]


# --- refusing writes


def test_a_directory_that_was_full_takes_writes_again(
    logs: LogManager, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    log, home = the_log(logs, "first"), logs.directory_of("first", 0)
    assert home is not None
    disk.fail(DiskOperation.APPEND, errno.ENOSPC)
    assert [is_refused(log) for _ in range(5)] == [True] * 5
    (line,) = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert line.startswith(f"log directory {home.path} refuses writes (injected)")
    assert logs.health.unwritable_ids() == [home.directory_id]
    logs.health.probe()
    assert logs.health.unwritable_ids() == [home.directory_id]
    assert values_of(read_all(log)) == [b"one"]
    disk.heal()
    logs.health.probe()
    assert logs.health.unwritable_ids() == []
    assert append(log, b"two") == 1
    assert sorted(path.name for path in Path(home.path).glob(".write*")) == []


def test_a_log_that_cannot_be_made_leaves_nothing(logs: LogManager, disk: Disk, tmp_path: Path) -> None:
    disk.fail(DiskOperation.APPEND, errno.ENOSPC, "third")
    with pytest.raises(OSError, match="injected"):
        logs.create("third", 0)
    assert not list(tmp_path.glob("*/third-0"))
    disk.heal()
    assert append(logs.create("third", 0), b"one") == 0


# --- logs that cannot be opened


def test_a_log_that_cannot_be_opened_keeps_its_checkpoints_and_is_opened_later(tmp_path: Path, disk: Disk) -> None:
    logs = open_logs(tmp_path, disk)
    log = logs.create("t", 0)
    for value in range(5):
        append(log, b"%d" % value)
    log.advance_log_start(3)
    logs.close()
    home = tmp_path / "a"
    in_the_way = home / "t-0" / f"{7:020d}.log"
    in_the_way.mkdir()
    checkpoints = {path.name: path.read_bytes() for path in home.glob("*-offset-checkpoint")}
    again = open_logs(tmp_path, disk)
    assert again.get("t", 0) is None
    with pytest.raises(IsADirectoryError):
        again.create("t", 0)
    again.close()
    assert {path.name: path.read_bytes() for path in home.glob("*-offset-checkpoint")} == checkpoints
    assert not (home / CLEAN_SHUTDOWN).exists()
    again = open_logs(tmp_path, disk)
    in_the_way.rmdir()
    opened = again.create("t", 0)
    assert (opened.log_start_offset, opened.log_end_offset) == (3, 5)
    again.close()
    assert (home / CLEAN_SHUTDOWN).exists()
