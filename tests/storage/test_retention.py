"""Retention by time and size, in the active segment too, and DeleteRecords."""

import pytest

from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.records.compression import Codec
from gregor.storage.clock import ManualClock
from gregor.storage.disk.open_files import OpenFiles
from gregor.storage.index.index_format import NO_RECEIPT
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log.partition_log import PartitionLog
from gregor.storage.log.retention import apply_retention
from tests.storage.forgetful_files import ForgetfulFiles
from tests.storage.payloads import append, payload, read_all, values_of


def open_log(config: LogConfig, clock: ManualClock, files: ForgetfulFiles | None = None) -> PartitionLog:
    return PartitionLog.open("/logs/topic-0", config, clock, pool=OpenFiles(files or ForgetfulFiles()))


def test_retention_removes_expired_records_from_the_active_segment() -> None:
    """KAFKA-979: retention does not wait until the segment is full."""
    clock = ManualClock(1_000)
    log = open_log(LogConfig(retention_ms=100), clock)
    for timestamp in range(900, 1000, 10):
        append(log, b"%d" % timestamp, timestamp=timestamp)
    assert apply_retention(log, 1_045) == 5
    assert values_of(read_all(log))[0] == b"950"
    assert apply_retention(log, 1_050) == 5, "a record of exactly retention.ms stays"
    assert len(log.segments) == 1


def test_everything_expired_leaves_one_empty_segment() -> None:
    log = open_log(LogConfig(retention_ms=100), ManualClock(1_000))
    append(log, b"old", timestamp=900)
    log.roll()
    append(log, b"old", timestamp=910)
    assert apply_retention(log, 2_000) == 2
    assert [(segment.base_offset, segment.size_bytes) for segment in log.segments] == [(2, 0)]
    assert append(log, b"new", timestamp=2_000) == 2


def test_a_young_record_protects_what_comes_after_it() -> None:
    log = open_log(LogConfig(retention_ms=100), ManualClock(1_000))
    append(log, b"young", timestamp=1_000)
    append(log, b"late", timestamp=10)
    assert apply_retention(log, 1_050) == 0


def test_v0_messages_age_by_their_receipt() -> None:
    clock = ManualClock(1_000)
    log = open_log(LogConfig(retention_ms=100), clock)
    append(log, b"first", magic=0)
    clock.advance(60)
    append(log, b"second", magic=0)
    assert apply_retention(log, 1_120) == 1
    assert values_of(read_all(log)) == [b"second"]


def test_records_without_time_go_with_their_whole_segment() -> None:
    files = ForgetfulFiles()
    files.now_ms = 5_000
    log = open_log(LogConfig(retention_ms=100), ManualClock(5_000), files)
    append(log, b"timeless", timestamp=-1)
    assert apply_retention(log, 5_050) == 0
    assert apply_retention(log, 5_200) == 1


BY_RECEIPT = LogConfig(retention_ms=10_000, gregor_retention_by="receipt")


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("timestamp", [-1, 5, 10**15], ids=["none", "1970", "far future"])
def test_by_receipt_the_clock_of_a_producer_is_of_no_effect(magic: int, codec: Codec, timestamp: int) -> None:
    if magic == 0 and timestamp != -1:
        pytest.skip("v0 has no timestamps")
    clock = ManualClock(1_000_000)
    log = open_log(BY_RECEIPT, clock)
    for number in range(8):
        log.append(payload([b"%d" % number], magic=magic, codec=codec, timestamp=timestamp), leader_epoch=0)
        clock.advance(3_000)
    assert apply_retention(log, 1_000_000 + 10_000) == 0, "the oldest is exactly 10 s old"
    assert apply_retention(log, 1_000_000 + 10_001) == 1
    assert apply_retention(log, 1_000_000 + 15_500) == 2
    assert values_of(read_all(log))[0] == b"2"
    assert apply_retention(log, clock.now_ms() + 60_000) == log.log_end_offset == 8
    assert log.append(payload([b"8"], magic=magic), leader_epoch=0).base_offset == 8


def test_by_receipt_batches_of_one_second_expire_together() -> None:
    clock = ManualClock(1_000_000)
    log = open_log(BY_RECEIPT, clock)
    for number in range(30):
        append(log, b"%d" % number, timestamp=10**15)
        clock.advance(100)
    assert apply_retention(log, 1_000_000 + 10_001) == 10
    assert log.segments[0].index.entry_count == 3, "one entry a second"


def test_by_receipt_survives_a_restart_and_the_loss_of_the_index() -> None:
    files, clock = ForgetfulFiles(), ManualClock(1_000_000)
    files.now_ms = 1_020_000
    log = open_log(BY_RECEIPT, clock, files)
    append(log, b"old", timestamp=10**15)
    clock.advance(5_000)
    append(log, b"new", timestamp=10**15)
    log.close()
    again = open_log(BY_RECEIPT, clock, files)
    assert apply_retention(again, 1_010_001) == 1
    again.abandon()
    files.remove(again.segments[0].index.path)
    guessed = open_log(BY_RECEIPT, clock, files)
    assert apply_retention(guessed, 1_010_001) == 0, "the file was written later"


def test_by_receipt_unknown_times_before_known_ones_expire_with_them() -> None:
    """A segment of an older Gregor, whose index has no receipt times, that was appended to by this one."""
    clock = ManualClock(1_000_000)
    log = open_log(BY_RECEIPT, clock)
    for receipt_ms in (NO_RECEIPT, 1_000_000, 1_005_000):
        clock.set(max(receipt_ms, 0))
        append(log, b"", timestamp=10**15)
        if receipt_ms == NO_RECEIPT:
            log.segments[0].index.create(has_gaps=False)
            log.segments[0].index.offer(0, 0, 10**15)
    assert [entry.receipt for entry in log.segments[0].index.entries()] == [1_000_000, 1_005_000]
    assert apply_retention(log, 1_010_000) == 0, "the first may be as young as the second"
    assert apply_retention(log, 1_010_001) == 2


def test_size_keeps_at_least_the_limit() -> None:
    log = open_log(LogConfig(retention_ms=-1, retention_bytes=100), ManualClock())
    for number in range(4):
        append(log, b"%d" % number)
        log.roll()
    batch_bytes = log.segments[0].size_bytes
    log.config = LogConfig(retention_ms=-1, retention_bytes=2 * batch_bytes + 1)
    assert apply_retention(log, 0) == 1
    log.config = LogConfig(retention_ms=-1, retention_bytes=2 * batch_bytes)
    assert apply_retention(log, 0) == 2


def test_a_compacted_topic_is_not_aged() -> None:
    log = open_log(LogConfig(cleanup_policy="compact", retention_ms=1), ManualClock())
    append(log, b"old", timestamp=10)
    assert apply_retention(log, 10_000) == 0


def test_retention_keeps_segments_above_the_high_watermark() -> None:
    log = open_log(LogConfig(retention_ms=100), ManualClock())
    log.sole_replica = False
    append(log, b"old", timestamp=10)
    append(log, b"old", timestamp=10)
    log.advance_high_watermark(1)
    assert apply_retention(log, 10_000) == 1


class TestDeleteRecords:
    def test_moves_the_log_start(self) -> None:
        log = open_log(LogConfig(), ManualClock())
        append(log, b"0", b"1", b"2")
        assert log.advance_log_start(2) == 2
        assert values_of(read_all(log)) == [b"2"]
        assert log.advance_log_start(1) == 2, "the log start offset never decreases"
        with pytest.raises(BrokerError) as caught:
            log.read(1, 100)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    def test_delete_records_with_minus_1_deletes_up_to_the_high_watermark(self) -> None:
        log = open_log(LogConfig(), ManualClock())
        append(log, b"0", b"1")
        assert log.advance_log_start(-1) == 2
        assert read_all(log) == []

    def test_delete_records_beyond_the_high_watermark_is_offset_out_of_range(self) -> None:
        log = open_log(LogConfig(), ManualClock())
        with pytest.raises(BrokerError) as caught:
            log.advance_log_start(1)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    def test_removes_whole_segments_after_the_delay(self) -> None:
        files, clock = ForgetfulFiles(), ManualClock()
        log = open_log(LogConfig(file_delete_delay_ms=50), clock, files)
        append(log, b"0")
        log.roll()
        append(log, b"1")
        log.advance_log_start(1)
        assert "/logs/topic-0/00000000000000000000.log.deleted" in files.nodes
        assert log.due_removals(49) is None
        removal = log.due_removals(50)
        assert removal is not None
        removal()
        assert not [path for path in files.nodes if path.endswith(".deleted")]
