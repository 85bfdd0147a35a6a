"""Batches that another log has numbered: the copy is equal, byte for byte, and stays so over crash and restart."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.records import v2
from gregor.protocol.records.batches import Record, iter_batches
from gregor.protocol.records.compression import Codec
from gregor.storage.clock import ManualClock
from gregor.storage.disk.open_files import OpenFiles
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log.partition_log import PartitionLog
from tests.storage.forgetful_files import ForgetfulFiles
from tests.storage.payloads import append, marker, payload, read_all, read_records


def open_log(directory: str = "/logs/topic-0", files: ForgetfulFiles | None = None) -> PartitionLog:
    return PartitionLog.open(directory, LogConfig(), ManualClock(5_000), pool=OpenFiles(files or ForgetfulFiles()))


def stored_bytes(log: PartitionLog) -> bytes:
    data = b""
    for segment in log.segments:
        segment.load()
        data += bytes(segment.map(0))
    return data


FORMATS = st.tuples(st.sampled_from([0, 1, 2]), st.sampled_from([Codec.NONE, Codec.GZIP]), st.integers(1, 4))


@given(st.lists(FORMATS, min_size=1, max_size=8), st.integers(0, 3))
@settings(max_examples=40)
def test_a_follower_log_equals_the_leader_log_byte_for_byte(appends: list[tuple[int, Codec, int]], epoch: int) -> None:
    leader, follower = open_log(), open_log("/logs/copy-0")
    for magic, codec, count in appends:
        leader.append(payload([b"v"] * count, magic=magic, codec=codec), leader_epoch=epoch)
    data = stored_bytes(leader)
    result = follower.append_as_follower(data + data[:20])
    assert (result.base_offset, result.last_offset) == (0, leader.log_end_offset - 1)
    assert stored_bytes(follower) == data
    assert read_all(follower) == read_all(leader)
    if appends[0][0] == v2.MAGIC:
        # Batches of v0 and v1 have no leader epoch.
        assert follower.epoch_for_offset(0) == leader.epoch_for_offset(0) == epoch


def test_offsets_may_be_missing_and_are_found_over_a_restart() -> None:
    files = ForgetfulFiles()
    log = open_log(files=files)
    for offset in (7, 3_000_000_000, 3_000_000_005):
        batch = v2.build_batch([Record(offset, 1, None, b"%d" % offset)], base_offset=offset)
        assert log.append_as_follower(batch).base_offset == offset
    assert len(log.segments) == 2, "an index cannot span more than 2**31 offsets"
    for reopened in (log, open_log(files=files)):
        assert [record.offset for record in read_all(reopened)] == [7, 3_000_000_000, 3_000_000_005]
        assert read_records(reopened, 8)[0].offset == 3_000_000_000
        assert reopened.log_end_offset == 3_000_000_006
    assert append(log, b"next") == 3_000_000_006


def test_batches_that_do_not_follow_the_log_are_refused_and_not_written() -> None:
    log = open_log()
    append(log, b"a", b"b")

    def batch(offset: int, epoch: int = 0) -> bytes:
        return v2.build_batch([Record(offset, 1, None, b"v")], base_offset=offset, leader_epoch=epoch)

    damaged = bytearray(batch(2))
    damaged[-1] ^= 1
    for data, code in (
        (batch(1), ErrorCode.OFFSET_OUT_OF_RANGE),
        (batch(2) + batch(2), ErrorCode.CORRUPT_MESSAGE),
        (batch(2, 3) + batch(3, 2), ErrorCode.CORRUPT_MESSAGE),
        (batch(2) + bytes(damaged), ErrorCode.CORRUPT_MESSAGE),
    ):
        with pytest.raises(BrokerError) as caught:
            log.append_as_follower(data)
        assert caught.value.code is code
        assert log.log_end_offset == 2
    assert log.append_as_follower(batch(2, 3)).last_offset == 2
    assert log.append_as_follower(b"").base_offset == -1


def test_a_follower_log_has_the_transactions_and_producer_state_of_the_leader() -> None:
    leader, follower = open_log(), open_log("/logs/copy-0")
    leader.append(
        payload([b"a", b"b"], producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True), leader_epoch=0
    )
    follower.append_as_follower(stored_bytes(leader))
    assert (follower.last_stable_offset, follower.high_watermark) == (0, 2)
    copied = leader.log_end_offset
    leader.append(marker(is_abort=True, producer_id=5), leader_epoch=0)
    rest = b"".join(bytes(batch.view) for batch in iter_batches(stored_bytes(leader)) if batch.stored_offset >= copied)
    follower.append_as_follower(rest)
    assert follower.last_stable_offset == 3
    assert follower.aborted_transactions(0, 3) == leader.aborted_transactions(0, 3) != []
    assert follower.producers.snapshot() == leader.producers.snapshot()


def test_a_follower_waits_for_the_leaders_high_watermark() -> None:
    leader, follower = open_log(), open_log("/logs/copy-0")
    follower.sole_replica = False
    append(leader, b"a", b"b")
    follower.append_as_follower(stored_bytes(leader))
    assert (follower.high_watermark, follower.log_end_offset) == (0, 2)
    follower.advance_high_watermark(1)
    assert follower.high_watermark == 1
