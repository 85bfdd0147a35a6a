"""Idempotent and transactional producers: accepted batches, and the state that a log keeps of producers."""

import pytest

from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.storage.clock import ManualClock
from gregor.storage.disk.open_files import OpenFiles
from gregor.storage.index.transaction_index import AbortedTransaction
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log.partition_log import AppendOrigin, AppendResult, PartitionLog
from gregor.storage.producers.producer_snapshot import (
    MalformedSnapshotError,
    ProducerSnapshot,
    format_snapshot,
    parse_snapshot,
)
from gregor.storage.producers.producer_state import MAX_SEQUENCE, PRODUCER_ID_EXPIRATION_MS
from tests.storage.forgetful_files import ForgetfulFiles
from tests.storage.payloads import append, marker, payload

NOW_MS = 5_000


@pytest.fixture
def files() -> ForgetfulFiles:
    return ForgetfulFiles()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_MS)


@pytest.fixture
def log(files: ForgetfulFiles, clock: ManualClock) -> PartitionLog:
    return open_log(files, clock)


def open_log(files: ForgetfulFiles, clock: ManualClock, *, is_clean: bool = False) -> PartitionLog:
    return PartitionLog.open("/logs/topic-0", LogConfig(), clock, pool=OpenFiles(files), is_clean=is_clean)


def send(
    log: PartitionLog,
    sequence: int,
    count: int = 1,
    *,
    epoch: int = 0,
    producer: int = 7,
    transactional: bool = False,
    timestamp: int = 1000,
    origin: AppendOrigin = AppendOrigin.CLIENT,
) -> AppendResult:
    produced = payload(
        [b"value"] * count,
        timestamp=timestamp,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=transactional,
    )
    return log.append(produced, leader_epoch=0, origin=origin)


def end(log: PartitionLog, *, is_abort: bool, epoch: int = 0, producer: int = 7, coordinator_epoch: int = 0) -> int:
    produced = marker(
        is_abort=is_abort, producer_id=producer, producer_epoch=epoch, coordinator_epoch=coordinator_epoch
    )
    return log.append(produced, leader_epoch=0, origin=AppendOrigin.COORDINATOR).base_offset


def refused(code: ErrorCode, log: PartitionLog, sequence: int, **options: int) -> None:
    before = log.log_end_offset
    with pytest.raises(BrokerError) as caught:
        send(log, sequence, **options)  # type: ignore[arg-type]
    assert caught.value.code is code
    assert log.log_end_offset == before


class TestSequences:
    def test_batches_in_sequence_order_are_appended(self, log: PartitionLog) -> None:
        assert send(log, 0, 3).base_offset == 0
        assert send(log, 3).base_offset == 3

    def test_a_duplicate_gets_its_old_offsets(self, log: PartitionLog) -> None:
        send(log, 0, 3, timestamp=1234)
        send(log, 3)
        assert send(log, 0, 3) == AppendResult(0, 2, 1234, 0, duplicate=True)
        assert log.log_end_offset == 4

    def test_each_of_the_last_five_is_a_duplicate(self, log: PartitionLog) -> None:
        for sequence in range(6):
            send(log, sequence)
        for sequence in range(1, 6):
            assert send(log, sequence).duplicate
        refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, 0)

    def test_a_batch_with_a_known_base_sequence_and_another_length_is_refused(self, log: PartitionLog) -> None:
        send(log, 0, 3)
        refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, 0, count=2)

    def test_a_sequence_gap_is_out_of_order_sequence_number(self, log: PartitionLog) -> None:
        send(log, 0)
        refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, 2)

    def test_an_unknown_producer_may_start_at_any_sequence(self, log: PartitionLog) -> None:
        assert send(log, 42).base_offset == 0
        refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, 44)

    def test_sequences_wrap_around_between_batches(self, log: PartitionLog) -> None:
        send(log, MAX_SEQUENCE)
        send(log, 0)
        assert send(log, MAX_SEQUENCE).duplicate

    def test_sequences_wrap_around_inside_a_batch(self, log: PartitionLog) -> None:
        send(log, MAX_SEQUENCE - 1, 4)
        send(log, 2)
        assert send(log, MAX_SEQUENCE - 1, 4).duplicate

    def test_sequences_of_coordinator_batches_are_not_checked(self, log: PartitionLog) -> None:
        send(log, 0)
        assert send(log, 5, origin=AppendOrigin.COORDINATOR).base_offset == 1

    def test_producers_have_independent_sequences(self, log: PartitionLog) -> None:
        send(log, 0, producer=1)
        send(log, 0, producer=2)
        send(log, 1, producer=1)
        assert log.log_end_offset == 3


class TestEpochs:
    def test_an_older_producer_epoch_is_fenced(self, log: PartitionLog) -> None:
        send(log, 0, epoch=3)
        refused(ErrorCode.INVALID_PRODUCER_EPOCH, log, 1, epoch=2)

    def test_a_new_producer_epoch_starts_at_sequence_0(self, log: PartitionLog) -> None:
        send(log, 0, 5)
        refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, 5, epoch=1)
        assert send(log, 0, epoch=1).base_offset == 5

    def test_a_duplicate_of_an_older_producer_epoch_is_fenced(self, log: PartitionLog) -> None:
        send(log, 0)
        send(log, 0, epoch=1)
        refused(ErrorCode.INVALID_PRODUCER_EPOCH, log, 0, epoch=0)

    def test_a_transaction_marker_may_raise_the_producer_epoch(self, log: PartitionLog) -> None:
        send(log, 0, transactional=True)
        end(log, is_abort=True, epoch=1)
        refused(ErrorCode.INVALID_PRODUCER_EPOCH, log, 1)
        assert send(log, 0, epoch=1).base_offset == 2


class TestTransactions:
    def test_an_open_transaction_holds_back_the_last_stable_offset(self, log: PartitionLog) -> None:
        append(log, b"before")
        send(log, 0, transactional=True)
        append(log, b"after")
        assert log.last_stable_offset == 1
        assert log.high_watermark == 3
        end(log, is_abort=False)
        assert log.last_stable_offset == 4

    def test_the_last_stable_offset_waits_for_all_overlapping_transactions(self, log: PartitionLog) -> None:
        send(log, 0, producer=1, transactional=True)
        send(log, 0, producer=2, transactional=True)
        end(log, is_abort=True, producer=1)
        assert log.last_stable_offset == 1
        end(log, is_abort=False, producer=2)
        assert log.last_stable_offset == 4
        assert log.aborted_transactions(0, 10) == [AbortedTransaction(1, 0, 2, 1)]

    def test_aborted_transactions_are_listed_by_offset_range(self, log: PartitionLog) -> None:
        for index in range(3):
            send(log, index, transactional=True)
            end(log, is_abort=index != 1)
        first, last = AbortedTransaction(7, 0, 1, 2), AbortedTransaction(7, 4, 5, 6)
        assert log.aborted_transactions(0, 6) == [first, last]
        assert log.aborted_transactions(2, 6) == [last]
        assert log.aborted_transactions(0, 4) == [first]
        assert log.aborted_transactions(2, 4) == []

    def test_a_marker_without_transactional_records_adds_no_aborted_transaction(self, log: PartitionLog) -> None:
        end(log, is_abort=True)
        assert log.aborted_transactions(0, 10) == []
        assert log.last_stable_offset == 1

    def test_a_non_transactional_batch_in_an_open_transaction_is_invalid_txn_state(self, log: PartitionLog) -> None:
        send(log, 0, transactional=True)
        refused(ErrorCode.INVALID_TXN_STATE, log, 1)

    def test_a_marker_with_an_older_coordinator_epoch_is_fenced(self, log: PartitionLog) -> None:
        send(log, 0, transactional=True)
        end(log, is_abort=False, coordinator_epoch=2)
        send(log, 1, transactional=True)
        with pytest.raises(BrokerError) as caught:
            end(log, is_abort=False, coordinator_epoch=1)
        assert caught.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED

    def test_a_producer_with_an_open_transaction_does_not_expire(self, log: PartitionLog) -> None:
        send(log, 0, transactional=True)
        log.producers.expire(NOW_MS)
        log.producers.expire(NOW_MS + 10 * PRODUCER_ID_EXPIRATION_MS)
        assert log.last_stable_offset == 0

    def test_an_ended_transaction_is_stable_only_below_the_high_watermark(self, log: PartitionLog) -> None:
        log.sole_replica = False
        send(log, 0, transactional=True)
        end(log, is_abort=False)
        log.advance_high_watermark(1)
        assert log.last_stable_offset == 0
        log.advance_high_watermark(2)
        assert log.last_stable_offset == 2


class TestRestart:
    @pytest.mark.parametrize("is_clean", [False, True])
    def test_sequences_epochs_and_transactions_survive_a_restart(
        self, files: ForgetfulFiles, clock: ManualClock, log: PartitionLog, is_clean: bool
    ) -> None:
        send(log, 0, 3, producer=1)
        send(log, 0, producer=2, epoch=4, transactional=True)
        send(log, 0, producer=3, transactional=True)
        end(log, is_abort=True, producer=3, coordinator_epoch=6)
        if is_clean:
            log.close()
        log = open_log(files, clock, is_clean=is_clean)
        assert send(log, 0, 3, producer=1).duplicate
        refused(ErrorCode.INVALID_PRODUCER_EPOCH, log, 1, producer=2, epoch=3)
        assert log.last_stable_offset == 3
        assert log.aborted_transactions(0, 10) == [AbortedTransaction(3, 4, 5, 3)]
        with pytest.raises(BrokerError):
            end(log, is_abort=False, producer=3, coordinator_epoch=5)

    def test_a_lost_transaction_index_is_built_again(
        self, files: ForgetfulFiles, clock: ManualClock, log: PartitionLog
    ) -> None:
        send(log, 0, transactional=True)
        end(log, is_abort=True)
        expected = log.aborted_transactions(0, 10)
        files.remove("/logs/topic-0/00000000000000000000.txnindex")
        assert open_log(files, clock).aborted_transactions(0, 10) == expected

    def test_truncation_restores_the_producer_state_at_its_offset(self, log: PartitionLog) -> None:
        send(log, 0)
        send(log, 1, transactional=True)
        log.truncate_to(1)
        assert log.last_stable_offset == 1
        assert send(log, 1).base_offset == 1

    def test_a_snapshot_is_taken_at_each_roll(self, files: ForgetfulFiles, log: PartitionLog) -> None:
        send(log, 0)
        log.roll()
        snapshot = parse_snapshot(files.read("/logs/topic-0/00000000000000000001.snapshot"))
        assert snapshot == [ProducerSnapshot(7, 0, 0, 0, 0, 1000, -1, -1)]

    def test_an_expired_producer_may_start_at_any_sequence(self, log: PartitionLog) -> None:
        send(log, 0)
        log.producers.expire(NOW_MS)
        log.producers.expire(NOW_MS + PRODUCER_ID_EXPIRATION_MS - 1)
        refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, 9)
        log.producers.expire(NOW_MS + PRODUCER_ID_EXPIRATION_MS)
        assert send(log, 9).base_offset == 1

    def test_producers_of_records_with_old_timestamps_do_not_expire(self, log: PartitionLog) -> None:
        for days in range(3):
            send(log, days, timestamp=1000)
            log.producers.expire(NOW_MS + days * PRODUCER_ID_EXPIRATION_MS)
        refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, 9)


class TestSnapshotFormat:
    PRODUCERS = [ProducerSnapshot(1, 2, 3, 4, 5, 6, 7, 8), ProducerSnapshot(2**40, 0, -1, -1, 0, -1, -1, -1)]

    def test_a_snapshot_is_read_as_written(self) -> None:
        assert parse_snapshot(format_snapshot(self.PRODUCERS)) == self.PRODUCERS
        assert parse_snapshot(format_snapshot([])) == []

    def test_snapshots_are_written_in_kafkas_format(self) -> None:
        body = "00000001" + "0000000000000001" + "0002" + "00000003" + "0000000000000004" + "00000005"
        body += "0000000000000006" + "00000007" + "0000000000000008"
        assert format_snapshot(self.PRODUCERS[:1])[6:].hex() == body
        assert format_snapshot(self.PRODUCERS[:1])[:2] == b"\0\1"

    @pytest.mark.parametrize("position", [0, 1, 2, 5, 6, 9, 20, -1])
    def test_a_snapshot_with_a_flipped_bit_is_malformed(self, position: int) -> None:
        data = bytearray(format_snapshot(self.PRODUCERS))
        data[position] ^= 4
        with pytest.raises(MalformedSnapshotError):
            parse_snapshot(bytes(data))

    @pytest.mark.parametrize("size", [0, 5, 9, 30])
    def test_a_truncated_snapshot_is_malformed(self, size: int) -> None:
        with pytest.raises(MalformedSnapshotError):
            parse_snapshot(format_snapshot(self.PRODUCERS)[:size])
