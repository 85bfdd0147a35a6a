"""Every way a file can be damaged, after a kill and after a clean stop.

Always: the log opens, serves all that is good before the damage, never a bad batch, takes new writes, and says what
it did.
"""

import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.records import v2
from gregor.protocol.records.batches import Record, iter_batches
from gregor.storage.clock import ManualClock
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log.partition_log import PartitionLog
from tests.storage.payloads import append, payload, read_records

RECORDS = 60
CLOCK_MS = 10_000
CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=100, retention_ms=-1)


def value(number: int) -> bytes:
    return b"value %d" % number


def open_log(directory: Path, *, is_clean: bool, recovery_point: int = 0) -> PartitionLog:
    return PartitionLog.open(
        str(directory), CONFIG, ManualClock(CLOCK_MS), is_clean=is_clean, recovery_point=recovery_point
    )


def segment_files(directory: Path, suffix: str = ".log") -> list[Path]:
    return sorted(directory.glob(f"*{suffix}"))


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """Return the closed directory of a log with 60 records, one a batch, in several segments."""
    directory = tmp_path / "topic-0"
    log = open_log(directory, is_clean=False)
    for number in range(RECORDS):
        append(log, value(number), timestamp=1000 + number)
    log.close()
    assert len(segment_files(directory)) > 3
    for path in segment_files(directory):
        # A rebuilt index takes receipt times from the file's mtime; the clock of these logs does not advance.
        os.utime(path, (CLOCK_MS / 1000, CLOCK_MS / 1000))
    return directory


def serve(log: PartitionLog) -> tuple[dict[int, bytes], set[int]]:
    """Return every record that any fetch returns by offset, and the offsets where a fetch answers CORRUPT_MESSAGE."""
    served: dict[int, bytes] = {}
    corrupt: set[int] = set()
    for offset in range(log.log_start_offset, log.log_end_offset):
        try:
            for record in read_records(log, offset, max_bytes=1):
                served[record.offset] = record.value or b""
        except BrokerError as fault:
            if fault.code is not ErrorCode.CORRUPT_MESSAGE:
                raise
            corrupt.add(offset)
    return served, corrupt


def check(directory: Path, first_bad: int, *, is_clean: bool, is_end: bool = False, is_total: bool = False) -> None:
    """Open, and hold the log against the sentence at the top; `first_bad` is the first offset that was damaged."""
    log = open_log(directory, is_clean=is_clean)
    served, _ = serve(log)
    assert all(served[offset] == value(offset) for offset in range(first_bad))
    for offset, found in served.items():
        assert found == value(offset), "a bad batch was served"
    if not is_total:
        assert first_bad not in served
    if is_end:
        assert log.log_end_offset == first_bad
    base = append(log, b"after the damage")
    assert base == log.log_end_offset - 1
    assert read_records(log, base)[0].value == b"after the damage"
    log.close()
    again = open_log(directory, is_clean=True)
    assert read_records(again, base)[0].value == b"after the damage"
    again.close()


both_stops = pytest.mark.parametrize("is_clean", [False, True], ids=["killed", "stopped"])

LAST_BATCH_BYTES = v2.HEADER_SIZE + 16


def first_offset_of(path: Path) -> int:
    return int(path.stem)


def edit(path: Path, change: Callable[[bytearray], None]) -> None:
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)


@both_stops
@pytest.mark.parametrize("cut", [1, 16, 40, LAST_BATCH_BYTES - 1])
def test_a_log_truncated_inside_its_last_batch_keeps_all_earlier_batches(
    written: Path, cut: int, is_clean: bool
) -> None:
    active = segment_files(written)[-1]
    edit(active, lambda data: data.__delitem__(slice(-cut, None)))
    check(written, RECORDS - 1, is_clean=is_clean, is_end=True)


@both_stops
def test_a_log_truncated_at_a_batch_boundary_ends_there(written: Path, is_clean: bool) -> None:
    active = segment_files(written)[-1]
    size = active.stat().st_size
    count = RECORDS - first_offset_of(active)
    edit(active, lambda data: data.__delitem__(slice(size - size // count, None)))
    log = open_log(written, is_clean=is_clean)
    assert log.log_end_offset == RECORDS - 1
    assert set(serve(log)[0]) == set(range(RECORDS - 1))
    log.close()


@both_stops
def test_a_truncated_middle_segment_serves_all_batches_before_the_cut(written: Path, is_clean: bool) -> None:
    middle = segment_files(written)[1]
    size = middle.stat().st_size
    edit(middle, lambda data: data.__delitem__(slice(size - 40, None)))
    first_of_next = first_offset_of(segment_files(written)[2])
    check(written, first_of_next - 1, is_clean=is_clean, is_end=not is_clean)


FIELDS = {
    "base offset": v2.BASE_OFFSET_AT + 7,
    "high byte of the base offset": v2.BASE_OFFSET_AT,
    "length": v2.LENGTH_AT + 3,
    "high byte of the length": v2.LENGTH_AT,
    "leader epoch": v2.LEADER_EPOCH_AT + 3,
    "magic": v2.MAGIC_AT,
    "crc": v2.CRC_AT,
    "attributes": v2.ATTRIBUTES_AT + 1,
    "record count": v2.RECORD_COUNT_AT + 3,
    "record": v2.RECORDS_AT + 3,
}


@both_stops
@pytest.mark.parametrize("bit", [0, 1, 5])
@pytest.mark.parametrize("field", FIELDS)
def test_a_batch_with_a_flipped_bit_in_the_active_segment_is_not_served(
    written: Path, field: str, bit: int, is_clean: bool
) -> None:
    active = segment_files(written)[-1]

    def flip(data: bytearray) -> None:
        size = len(data) // (RECORDS - first_offset_of(active))
        data[size + FIELDS[field]] ^= 1 << bit

    edit(active, flip)
    check(written, first_offset_of(active) + 1, is_clean=is_clean, is_end=not is_clean)


@both_stops
@pytest.mark.parametrize("field", FIELDS)
def test_a_batch_with_a_flipped_bit_in_a_middle_segment_is_not_served(
    written: Path, field: str, is_clean: bool
) -> None:
    middle = segment_files(written)[1]
    edit(middle, lambda data: data.__setitem__(FIELDS[field], data[FIELDS[field]] ^ 2))
    check(written, first_offset_of(middle), is_clean=is_clean)


@both_stops
def test_zeroed_batches_at_the_log_end_are_not_served(written: Path, is_clean: bool) -> None:
    active = segment_files(written)[-1]
    size = active.stat().st_size // (RECORDS - first_offset_of(active))
    edit(active, lambda data: data.__setitem__(slice(size, None), bytes(len(data) - size)))
    check(written, first_offset_of(active) + 1, is_clean=is_clean, is_end=not is_clean)


@both_stops
@pytest.mark.parametrize("garbage", [b"\0" * 4096, b"\xff" * 100, b"garbage" * 30], ids=["zeros", "ones", "text"])
def test_garbage_appended_to_the_active_segment_is_truncated(written: Path, garbage: bytes, is_clean: bool) -> None:
    active = segment_files(written)[-1]
    edit(active, lambda data: data.extend(garbage))
    check(written, RECORDS, is_clean=is_clean, is_end=True)


@both_stops
def test_a_stale_batch_appended_to_the_active_segment_is_truncated(written: Path, is_clean: bool) -> None:
    active = segment_files(written)[-1]
    stale = segment_files(written)[0].read_bytes()
    edit(active, lambda data: data.extend(stale))
    check(written, RECORDS, is_clean=is_clean, is_end=True)


@both_stops
def test_a_stale_batch_with_an_older_leader_epoch_is_truncated(written: Path, is_clean: bool) -> None:
    log = open_log(written, is_clean=True)
    log.append(payload([value(RECORDS)]), leader_epoch=1)
    log.close()
    active = segment_files(written)[-1]
    stale = bytearray(v2.build_batch([Record(0, 1000, b"k", b"stale")], base_offset=RECORDS + 1))
    edit(active, lambda data: data.extend(stale))
    log = open_log(written, is_clean=is_clean)
    assert serve(log)[0] == {offset: value(offset) for offset in range(RECORDS + 1)}
    assert log.log_end_offset == RECORDS + 1
    log.close()


@both_stops
def test_zeroed_batches_in_the_middle_of_a_segment_are_not_served(tmp_path: Path, is_clean: bool) -> None:
    directory = tmp_path / "topic-0"
    log = PartitionLog.open(str(directory), LogConfig(retention_ms=-1), ManualClock(CLOCK_MS))
    for number in range(200):
        append(log, value(number), timestamp=1000 + number)
    log.close()
    (segment,) = segment_files(directory)
    data = segment.read_bytes()
    first_bad = next(batch.stored_offset for batch in iter_batches(data) if batch.end > 4096)
    edit(segment, lambda data: data.__setitem__(slice(4096, 8192), bytes(4096)))
    check(directory, first_bad, is_clean=is_clean, is_end=not is_clean)


@both_stops
@pytest.mark.parametrize("number", [0, 1, -1])
def test_a_log_with_an_emptied_segment_serves_all_batches_before_it(written: Path, number: int, is_clean: bool) -> None:
    emptied = segment_files(written)[number]
    emptied.write_bytes(b"")
    log = open_log(written, is_clean=is_clean)
    served, _ = serve(log)
    assert all(served[offset] == value(offset) for offset in range(first_offset_of(emptied)))
    assert all(found == value(offset) for offset, found in served.items())
    assert append(log, b"more") == log.log_end_offset - 1
    log.close()


def garble(data: bytearray) -> None:
    data[:] = b"garbage" * 50


def flip_entry(data: bytearray) -> None:
    data[96 + 3] ^= 0x40


INDEX_DAMAGES: dict[str, Callable[[list[Path]], object]] = {
    "missing": lambda files: [file.unlink() for file in files] and None,
    "empty": lambda files: [file.write_bytes(b"") for file in files] and None,
    "cut": lambda files: (
        [edit(file, lambda data: data.__delitem__(slice(len(data) // 2, None))) for file in files] and None
    ),
    "garbage": lambda files: [edit(file, garble) for file in files] and None,
    "flipped entry": lambda files: [edit(file, flip_entry) for file in files if file.stat().st_size > 128] and None,
    "swapped": lambda files: (
        files[0].rename(files[0].with_suffix(".x"))
        and files[1].rename(files[0])
        and files[0].with_suffix(".x").rename(files[1])
        and None
    ),
}


@both_stops
@pytest.mark.parametrize("damage", INDEX_DAMAGES)
def test_a_damaged_index_is_rebuilt(
    written: Path, damage: str, is_clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    pristine = {path.name: path.read_bytes() for path in segment_files(written, ".gindex")}
    INDEX_DAMAGES[damage](segment_files(written, ".gindex"))
    with caplog.at_level(logging.WARNING):
        log = open_log(written, is_clean=is_clean)
        served, corrupt = serve(log)
    assert served == {offset: value(offset) for offset in range(RECORDS)}
    assert not corrupt
    for number in range(RECORDS):
        found = log.offset_for_timestamp(1000 + number)
        assert found is not None
        assert found.offset == number
    if is_clean:
        assert caplog.records, "the log names the repair"
    for segment in log.segments:
        segment.finish(has_producers=segment is not log.segments[-1])
    log.abandon()
    if damage != "flipped entry" or not is_clean:
        rebuilt = {path.name: path.read_bytes() for path in segment_files(written, ".gindex")}
        assert rebuilt == pristine, "the same bytes as before"


@both_stops
@pytest.mark.parametrize(
    "name",
    ["leader-epoch-checkpoint", "partition.metadata", "00000000000000000099.snapshot", "00000000000000000000.txnindex"],
)
def test_garbage_in_checkpoint_and_snapshot_files_loses_no_records(written: Path, name: str, is_clean: bool) -> None:
    (written / name).write_bytes(b"\xff\xfegarbage\n\n1 2 3")
    log = open_log(written, is_clean=is_clean)
    assert set(serve(log)[0]) == set(range(RECORDS))
    assert log.leader_epoch == 0
    log.close()


@both_stops
@pytest.mark.parametrize("state", [".deleted", ".cleaned", ".tmp"])
def test_left_over_segment_files_are_removed(written: Path, state: str, is_clean: bool) -> None:
    left_over = written / f"00000000000000000007.log{state}"
    left_over.write_bytes(b"whatever")
    orphan = written / "00000000000000000007.gindex"
    orphan.write_bytes(b"whatever")
    stranger = written / "notes.txt"
    stranger.write_text("not ours")
    log = open_log(written, is_clean=is_clean)
    assert set(serve(log)[0]) == set(range(RECORDS))
    assert not left_over.exists()
    assert not orphan.exists()
    assert stranger.exists()
    log.close()


@both_stops
@pytest.mark.parametrize("kind", [".swap", ".log.swap", ".reclaim"])
@pytest.mark.parametrize("contents", [b"", b"\xff\xfegarbage", b"0\n1\n0 60\n", b"0\n1\n500 300\n"])
def test_malformed_swap_and_reclaim_files_are_removed(
    written: Path, kind: str, contents: bytes, is_clean: bool
) -> None:
    """Swaps and reclaims whose files are malformed, or name missing files."""
    left_over = written / f"00000000000000000500{kind}"
    left_over.write_bytes(contents)
    log = open_log(written, is_clean=is_clean)
    assert set(serve(log)[0]) == set(range(RECORDS))
    assert append(log, b"more") == RECORDS
    log.close()
    assert not left_over.exists()


def test_a_copied_directory_keeps_its_times(written: Path, tmp_path: Path) -> None:
    """KAFKA-881, KAFKA-1379: nothing depends on when the files were made."""
    copy = tmp_path / "elsewhere" / "topic-0"
    shutil.copytree(written, copy)
    log = open_log(copy, is_clean=True)
    assert [segment.first_timestamp for segment in log.segments if segment.load() is None] == [
        1000 + segment.base_offset for segment in log.segments
    ]
    log.close()


def test_recovery_logs_each_truncation(written: Path, caplog: pytest.LogCaptureFixture) -> None:
    active = segment_files(written)[-1]
    edit(active, lambda data: data.extend(b"x"))
    with caplog.at_level(logging.WARNING):
        open_log(written, is_clean=False).close()
    assert "truncated from" in caplog.text
    assert active.name in caplog.text


def test_recovery_costs_the_unflushed_tail_only(written: Path) -> None:
    first = segment_files(written)[0]
    edit(first, lambda data: data.__setitem__(v2.CRC_AT, data[v2.CRC_AT] ^ 1))
    log = open_log(written, is_clean=False, recovery_point=RECORDS)
    assert log.log_end_offset == RECORDS, "segments below the recovery point are not read"
    served, corrupt = serve(log)
    assert 0 in corrupt
    assert 0 not in served
    log.close()
