"""Full disks, I/O errors and short writes: a storage error for one request, no partial batch, later appends."""

import errno

import pytest

from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.storage.clock import ManualClock
from gregor.storage.disk.directory_health import DirectoryHealth, WatchedFiles
from gregor.storage.disk.open_files import OpenFiles
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log.partition_log import PartitionLog
from tests.storage.forgetful_files import ForgetfulFiles
from tests.storage.payloads import append, read_all, values_of


def open_log(files: ForgetfulFiles, **settings: int) -> PartitionLog:
    config = LogConfig(**settings)  # type: ignore[arg-type]
    health = DirectoryHealth("/logs")
    pool = OpenFiles(WatchedFiles(files, lambda _: health))
    return PartitionLog.open("/logs/topic-0", config, ManualClock(), pool=pool, health=health)


def fails(log: PartitionLog, value: bytes = b"lost") -> None:
    with pytest.raises(BrokerError) as caught:
        append(log, value)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_failed_write_appends_nothing(code: int) -> None:
    files = ForgetfulFiles()
    log = open_log(files)
    append(log, b"before")
    files.fail("write", code)
    fails(log)
    files.heal()
    assert log.log_end_offset == 1
    assert append(log, b"after") == 1
    assert values_of(read_all(log)) == [b"before", b"after"]
    assert values_of(read_all(open_log(files))) == [b"before", b"after"]


def test_a_short_write_is_finished() -> None:
    files = ForgetfulFiles()
    log = open_log(files)
    files.shorten_next_write(10)
    append(log, b"whole")
    assert values_of(read_all(log)) == [b"whole"]


def test_a_short_write_on_a_full_disk_leaves_no_part() -> None:
    files = ForgetfulFiles()
    log = open_log(files)
    append(log, b"before")
    size = files.size("/logs/topic-0/00000000000000000000.log")
    files.shorten_next_write(10)
    files.fail("write", errno.ENOSPC)
    fails(log)
    assert files.size("/logs/topic-0/00000000000000000000.log") == size
    files.heal()
    assert values_of(read_all(log)) == [b"before"]


def test_a_full_disk_at_a_segment_roll_fails_the_append_and_loses_no_records() -> None:
    files = ForgetfulFiles()
    log = open_log(files, segment_bytes=100)
    append(log, b"before")
    files.fail("allocate", errno.ENOSPC)
    fails(log)
    files.heal()
    assert append(log, b"after") == 1
    assert values_of(read_all(log)) == [b"before", b"after"]


def test_a_failed_segment_roll_leaves_no_file_that_hides_later_records() -> None:
    files = ForgetfulFiles()
    log = open_log(files, segment_bytes=300)
    append(log, b"before")
    files.fail("allocate", errno.ENOSPC)
    fails(log, b"large" * 45)
    files.heal()
    values = [b"before", b"small", b"larger" * 37, b"last"]
    for value in values[1:]:
        append(log, value)
    logs = [name for name in files.list("/logs/topic-0") if name.endswith(".log")]
    assert sorted(logs) == [f"{base_offset:020}.log" for base_offset in (0, 2, 3)]
    assert values_of(read_all(log)) == values
    log.close()
    assert values_of(read_all(open_log(files, segment_bytes=300))) == values


def test_no_room_for_the_index_is_seen_before_the_batch_is_visible() -> None:
    files = ForgetfulFiles()
    log = open_log(files, index_interval_bytes=0)
    files.fail("allocate", errno.ENOSPC)
    for numbers in range(1000):
        try:
            append(log, b"%d" % numbers)
        except BrokerError:
            break
    assert 50 < numbers < 999
    assert log.log_end_offset == numbers
    files.heal()
    append(log, b"%d" % numbers)
    assert values_of(read_all(log)) == [b"%d" % number for number in range(numbers + 1)]


def test_a_failed_fsync_is_a_storage_error_and_keeps_the_recovery_point() -> None:
    files = ForgetfulFiles()
    log = open_log(files)
    append(log, b"one")
    files.fail("sync")
    with pytest.raises(BrokerError) as caught:
        log.flush()
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.recovery_point == 0
    files.heal()
    with pytest.raises(BrokerError) as caught:
        log.flush()
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.recovery_point == 0, "a second fsync succeeds without the pages that the first one has lost"


def test_a_failed_read_is_a_storage_error() -> None:
    files = ForgetfulFiles()
    log = open_log(files)
    append(log, b"one")
    append(log, b"two")
    files.fail("read")
    with pytest.raises(BrokerError) as caught:
        log.read(0, 100)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_index_entries_of_a_failed_append_are_removed() -> None:
    files = ForgetfulFiles()
    log = open_log(files, index_interval_bytes=0)
    for number in range(120):
        append(log, b"%d" % number)
    files.fail("allocate", errno.ENOSPC)
    with pytest.raises(BrokerError):
        append(log, *[b"message"] * 30, magic=1)
    files.heal()
    assert log.log_end_offset == 120
    append(log, *[b"message"] * 30, magic=1)
    entries = list(log.segments[0].index.entries())
    assert entries == sorted(set(entries))
    assert [record.offset for record in read_all(log)] == list(range(150))
