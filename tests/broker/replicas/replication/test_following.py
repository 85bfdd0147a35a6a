"""A follower's handling of its leader's answers: truncation, appended and skipped batches."""

from __future__ import annotations

import pytest

from gregor.broker.metadata.state import PartitionState
from gregor.broker.replicas.partition import Partition
from gregor.broker.replicas.replication.following import Followed, Outcome, truncation_offset
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.fetch import EpochEndOffset, PartitionData
from gregor.storage.clock import ManualClock
from gregor.storage.disk.open_files import OpenFiles
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log.partition_log import PartitionLog
from tests.storage.forgetful_files import ForgetfulFiles
from tests.storage.payloads import payload, read_all

ME, LEADER = 1, 2


def a_log(*epochs: int, magic: int = 2) -> PartitionLog:
    """Return a log with one record of each of these leader epochs."""
    log = PartitionLog.open("/logs/t-0", LogConfig(), ManualClock(5_000), pool=OpenFiles(ForgetfulFiles()))
    log.sole_replica = False
    for number, epoch in enumerate(epochs):
        log.append(payload([b"%d in %d" % (number, epoch)], magic=magic), leader_epoch=epoch)
    return log


def bytes_of(log: PartitionLog, offset: int = 0) -> bytes:
    with log.read(offset, 1 << 20) as found:
        return bytes(found.read())


def following(log: PartitionLog, epoch: int = 9) -> Followed:
    partition = Partition(log)
    partition.become_follower(PartitionState(0, LEADER, epoch, [ME, LEADER], [LEADER], 1))
    return Followed(partition, epoch)


@pytest.mark.parametrize(
    ("epochs", "told", "cut_at"),
    [
        ([1, 1, 1, 1], (1, 2), 2),  # the leader's epoch 1 ended earlier
        ([1, 1, 3, 3], (1, 4), 2),  # the follower's epoch 1 ended earlier: the leader never had epoch 3
        ([1, 1, 3, 3], (2, 3), 2),  # the follower never had that epoch: only the end of its epoch 1 is certain
        ([3, 3], (1, 5), 0),  # no epoch is known to be in both logs
        ([2, 2, 2], (-1, -1), 1),  # the leader has no epochs: replicated records stay
    ],
)
def test_truncation_offsets_of_a_follower(epochs: list[int], told: tuple[int, int], cut_at: int) -> None:
    log = a_log(*epochs)
    log.advance_high_watermark(1)
    assert truncation_offset(log, EpochEndOffset(epoch=told[0], end_offset=told[1])) == cut_at


def test_a_diverging_epoch_truncates_the_followers_log() -> None:
    followed = following(a_log(1, 1, 1))
    data = PartitionData(diverging_epoch=EpochEndOffset(epoch=1, end_offset=1), high_watermark=1, records=b"")
    assert followed.take(data, 3) is Outcome.GO_ON
    assert followed.log.log_end_offset == 1


def test_a_follower_takes_records_high_watermark_and_log_start_from_the_leader() -> None:
    leader, followed = a_log(1, 1, 2), following(a_log(1))
    data = PartitionData(high_watermark=2, log_start_offset=1, records=bytes_of(leader, 1))
    assert followed.take(data, 1) is Outcome.GO_ON
    log = followed.log
    assert bytes_of(log, 1) == bytes_of(leader, 1)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (1, 2, 3)
    assert log.leader_epoch == 2


def test_an_answer_that_comes_too_late_changes_nothing() -> None:
    leader, followed = a_log(1, 1), following(a_log(1))
    data = PartitionData(high_watermark=2, records=bytes_of(leader, 1))
    assert followed.take(data, 0) is Outcome.GO_ON
    assert followed.log.log_end_offset == 1
    followed.partition.become_follower(PartitionState(0, LEADER, 10, [ME, LEADER], [LEADER], 2))
    assert followed.take(data, 1) is Outcome.GO_ON
    assert followed.log.log_end_offset == 1


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (ErrorCode.OFFSET_OUT_OF_RANGE, Outcome.OUT_OF_RANGE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, Outcome.WAIT),
        (ErrorCode.FENCED_LEADER_EPOCH, Outcome.WAIT),
    ],
)
def test_error_codes_of_the_leader_determine_the_outcome_of_a_fetch(code: ErrorCode, outcome: Outcome) -> None:
    assert following(a_log(1)).take(PartitionData(error_code=code), 1) is outcome


def test_damaged_records_are_not_taken() -> None:
    leader, followed = a_log(1, 1), following(a_log(1))
    damaged = bytearray(bytes_of(leader, 1))
    damaged[-1] ^= 1
    assert followed.take(PartitionData(high_watermark=2, records=bytes(damaged)), 1) is Outcome.WAIT
    assert followed.log.log_end_offset == 1


def test_a_follower_below_the_leaders_log_start_resets_its_log_to_that_offset() -> None:
    followed = following(a_log(1))
    followed.continue_within(leader_start_offset=7, leader_end_offset=20)
    assert (followed.log.log_start_offset, followed.log.log_end_offset) == (7, 7)


def test_a_follower_ahead_of_its_leader_is_truncated() -> None:
    followed = following(a_log(1, 1, 1))
    followed.continue_within(leader_start_offset=0, leader_end_offset=2)
    assert followed.log.log_end_offset == 2


def test_a_batch_in_which_the_leaders_log_begins_is_taken_whole() -> None:
    leader = a_log()
    leader.append(payload([b"a", b"b", b"c"]), leader_epoch=1)
    followed = following(a_log())
    followed.log.truncate_fully(2)
    data = PartitionData(high_watermark=3, log_start_offset=2, records=bytes_of(leader))
    assert followed.take(data, 2) is Outcome.GO_ON
    assert bytes_of(followed.log, 2) == bytes_of(leader)
    assert followed.log.log_start_offset == 2


@pytest.mark.parametrize("magic", [0, 1])
def test_records_of_old_formats_get_the_leader_epochs_of_the_leader(magic: int) -> None:
    leader, followed = a_log(1, 1, 4, 4, 6, magic=magic), following(a_log())
    records = bytes_of(leader)
    assert followed.lacks_epochs(records)
    followed.epoch_starts = [(0, 1), (2, 4), (4, 6)]
    assert not followed.lacks_epochs(records)
    assert followed.take(PartitionData(high_watermark=5, records=records), 0) is Outcome.GO_ON
    for epoch in range(7):
        assert followed.log.end_offset_for_epoch(epoch) == leader.end_offset_for_epoch(epoch)
    assert read_all(followed.log) == read_all(leader)


def test_unreplicated_records_without_a_leader_epoch_are_truncated() -> None:
    log = a_log(-1, -1, magic=1)
    log.advance_high_watermark(1)
    followed = following(log)
    followed.begin()
    assert log.log_end_offset == 1
