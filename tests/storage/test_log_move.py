"""A log with any content is equal after its move to another log directory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.records.batches import iter_batches, iter_records
from gregor.protocol.records.compression import Codec
from gregor.storage.clock import ManualClock
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log.partition_log import PartitionLog
from gregor.storage.log_manager import LogManager
from tests.storage.payloads import append, marker, payload

PRODUCER = 7


class Disks:
    """A pair of log directories with one log in the first of them."""

    def __init__(self, folder: Path) -> None:
        self.paths = [str(folder / "one"), str(folder / "two")]
        self.clock = ManualClock(1_000_000)
        self.manager = self.opened()
        self.log = self.manager.create("t", 0)

    def opened(self) -> LogManager:
        manager = LogManager(self.paths, LogConfig(segment_bytes=2_000), self.clock)
        manager.open_all()
        return manager

    def move(self) -> PartitionLog:
        """Return the log, once it is in the second directory."""
        move = self.manager.begin_move(self.log, self.manager.directories[1])
        while move.step():
            pass
        return self.manager.finish_move(move)

    def restarted(self) -> PartitionLog:
        """Return the log as a broker finds it that was stopped in order."""
        self.manager.close()
        self.manager = self.opened()
        log = self.manager.get("t", 0)
        assert log is not None
        return log


@pytest.fixture
def disks(tmp_path: Path) -> Disks:
    return Disks(tmp_path)


def everything(log: PartitionLog) -> list[tuple[int, int, bytes | None]]:
    """Return the offset, leader epoch and value of each record from the log's start on."""
    found: list[tuple[int, int, bytes | None]] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        with log.read(offset, 1 << 20) as stretch:
            for batch in iter_batches(stretch.read()):
                found.extend(
                    (record.offset, log.epoch_for_offset(record.offset), record.value)
                    for record in iter_records(batch)
                    if record.offset >= log.log_start_offset
                )
                offset = batch.last_offset + 1
    return found


def fill(log: PartitionLog) -> None:
    for number in range(40):
        append(log, b"%d" % number, bytes(100))


def of_old_formats(log: PartitionLog) -> None:
    for magic in (0, 1):
        for codec in (Codec.NONE, Codec.GZIP):
            append(log, b"a", b"b", magic=magic, codec=codec)


def of_several_epochs(log: PartitionLog) -> None:
    for epoch in (0, 3, 4):
        log.append(payload([b"x"]), leader_epoch=epoch)


def begun_in_a_batch(log: PartitionLog) -> None:
    fill(log)
    log.advance_log_start(31)


def emptied(log: PartitionLog) -> None:
    fill(log)
    log.advance_log_start(-1)


@pytest.mark.parametrize("prepare", [fill, of_old_formats, of_several_epochs, begun_in_a_batch, emptied])
def test_a_moved_log_is_unchanged_also_after_a_restart(disks: Disks, prepare: Callable[[PartitionLog], None]) -> None:
    prepare(disks.log)
    before = everything(disks.log)
    facts = disks.log.log_start_offset, disks.log.log_end_offset, disks.log.topic_id
    for log in (disks.move(), disks.restarted()):
        assert everything(log) == before
        assert (log.log_start_offset, log.log_end_offset, log.topic_id) == facts
        assert log.directory == f"{disks.paths[1]}/t-0"
    assert append(disks.restarted(), b"next") == facts[1]


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_moved_log_keeps_its_receipt_times(disks: Disks, magic: int) -> None:
    for _ in range(30):
        disks.log.append(payload([b"x" * 500], magic=magic), leader_epoch=0)
        disks.clock.advance(1_500)
    before = receipts(disks.log)
    disks.clock.advance(3_600_000)
    assert receipts(disks.move()) == before
    assert receipts(disks.restarted()) == before


def receipts(log: PartitionLog) -> list[int]:
    for segment in log.segments:
        segment.load()
    return [segment.receipt_of(batch) for segment in log.segments for batch in segment.batches_from(0)]


def test_a_moved_log_keeps_its_producer_state_and_transactions(disks: Disks) -> None:
    def data(sequence: int) -> object:
        produced = payload(
            [b"x"], producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence, is_transactional=True
        )
        return disks.log.append(produced, leader_epoch=0)

    data(0)
    disks.log.append(marker(is_abort=True, producer_id=PRODUCER), leader_epoch=0)
    data(1)
    aborted = disks.log.aborted_transactions(0, 100)
    disks.log = disks.move()
    assert disks.log.aborted_transactions(0, 100) == aborted
    assert disks.log.last_stable_offset == 2
    again = payload([b"x"], producer_id=PRODUCER, producer_epoch=0, base_sequence=0, is_transactional=True)
    assert disks.log.append(again, leader_epoch=0).duplicate
    disks.log = disks.restarted()
    with pytest.raises(BrokerError) as refused:
        data(5)
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_records_deleted_during_a_move_are_deleted_in_the_copy(disks: Disks) -> None:
    fill(disks.log)
    move = disks.manager.begin_move(disks.log, disks.manager.directories[1])
    move.step()
    disks.log.advance_log_start(60)
    append(disks.log, b"more")
    before = everything(disks.log)
    assert everything(disks.manager.finish_move(move)) == before


def test_a_crash_during_a_move_leaves_the_log_in_its_old_directory(disks: Disks) -> None:
    fill(disks.log)
    before = everything(disks.log)
    disks.manager.begin_move(disks.log, disks.manager.directories[1]).step()
    for directory in disks.manager.directories:
        directory.unlock()
    disks.manager = disks.opened()
    log = disks.manager.get("t", 0)
    assert log is not None
    assert log.directory == f"{disks.paths[0]}/t-0"
    assert everything(log) == before
    for step in disks.manager.maintenance.run(disks.clock.now_ms()):
        step()
    assert not [path for path in Path(disks.paths[1]).iterdir() if path.name.endswith("-future")]


def test_a_cancelled_move_leaves_no_files(disks: Disks) -> None:
    fill(disks.log)
    move = disks.manager.begin_move(disks.log, disks.manager.directories[1])
    move.step()
    disks.manager.give_up_move("t", 0)
    assert move.is_over
    assert not [path for path in Path(disks.paths[1]).iterdir() if path.is_dir()]
    append(disks.log, b"more")
