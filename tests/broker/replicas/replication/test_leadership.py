"""A leader's handling of its followers' fetches, one rule at a time; times in milliseconds."""

from __future__ import annotations

import functools
import uuid

import pytest
import trio

from gregor.broker.metadata.state import PartitionState
from gregor.broker.replicas.partition import Partition
from gregor.broker.replicas.replication.leadership import InSyncChange, Leadership, ReplicationRules
from gregor.broker.server.pending import Pending
from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.storage.clock import ManualClock
from gregor.storage.disk.open_files import OpenFiles
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log.partition_log import PartitionLog
from tests.storage.forgetful_files import ForgetfulFiles
from tests.storage.payloads import payload

MAX_LAG_MS = 100
LEADER, SECOND, THIRD = 1, 2, 3
EPOCH = 5


class Led:
    """A partition with three replicas that broker 1 leads."""

    def __init__(self, in_sync: list[int], *, min_isr: int = 1) -> None:
        self.clock = ManualClock(10_000)
        self.dead: set[int] = set()
        self.wishes: list[InSyncChange] = []
        config = LogConfig(min_insync_replicas=min_isr)
        self.log = PartitionLog.open(
            "/logs/t-0", config, self.clock, pool=OpenFiles(ForgetfulFiles()), topic_id=uuid.UUID(int=7)
        )
        self.rules = ReplicationRules(
            LEADER,
            MAX_LAG_MS,
            self.clock.now_ms,
            lambda node_id, _: node_id not in self.dead,
            lambda _, wish: self.wishes.append(wish),
        )
        self.partition = Partition(self.log)
        self.state = PartitionState(0, LEADER, EPOCH, [LEADER, SECOND, THIRD], in_sync, 1)
        self.partition.become_leader(self.state, self.rules)

    @property
    def leadership(self) -> Leadership:
        assert self.partition.leadership is not None
        return self.partition.leadership

    def append(self, count: int = 1) -> int:
        """Append the given number of records; return the last offset."""
        return self.partition.append(payload([b"v"] * count)).last_offset

    def fetched(self, node_id: int, offset: int, *, broker_epoch: int = 9, log_start_offset: int = 0) -> None:
        self.partition.follower_fetched(node_id, offset, log_start_offset=log_start_offset, broker_epoch=broker_epoch)


def test_the_high_watermark_is_the_smallest_end_offset_of_the_isr() -> None:
    led = Led([LEADER, SECOND, THIRD])
    led.append(10)
    led.fetched(SECOND, 10)
    assert led.log.high_watermark == 0
    led.fetched(THIRD, 4)
    assert led.log.high_watermark == 4
    led.fetched(THIRD, 2)
    assert led.log.high_watermark == 4, "the high watermark never falls"
    led.fetched(THIRD, 10)
    assert led.log.high_watermark == 10


def test_a_follower_is_idle_if_it_is_in_sync_and_all_records_are_replicated() -> None:
    led = Led([LEADER, SECOND, THIRD])
    led.append(3)
    idles = functools.partial(led.leadership.idles, SECOND, log_start_offset=0, broker_epoch=9)
    led.fetched(SECOND, 3)
    assert not idles(3), "the third replica lacks the last record"
    led.fetched(THIRD, 3)
    assert not idles(2)
    assert not idles(3, broker_epoch=10), "the follower has restarted"
    assert not idles(3, log_start_offset=1), "the follower's log start offset differs"
    led.clock.advance(MAX_LAG_MS)
    assert idles(3)
    led.append(1)
    assert not idles(3)
    led.clock.advance(MAX_LAG_MS)
    led.partition.drop_laggards()
    (wish,) = led.wishes
    assert wish.node_ids == (LEADER, SECOND), "an idle follower stays in sync"


def test_a_follower_that_is_not_in_sync_is_not_idle() -> None:
    led = Led([LEADER, THIRD])
    led.fetched(SECOND, 0)
    led.fetched(THIRD, 0)
    assert not led.leadership.idles(SECOND, 0, log_start_offset=0, broker_epoch=9)


def test_a_leader_that_is_alone_in_the_isr_advances_the_high_watermark_itself() -> None:
    led = Led([LEADER])
    led.append(3)
    assert led.log.high_watermark == 3


def test_acks_all_is_refused_below_min_insync_replicas() -> None:
    led = Led([LEADER], min_isr=2)
    led.append(3)
    assert led.log.high_watermark == 0
    with pytest.raises(BrokerError) as caught:
        led.partition.check_in_sync()
    assert caught.value.code is ErrorCode.NOT_ENOUGH_REPLICAS


def test_min_insync_replicas_is_limited_by_the_number_of_replicas() -> None:
    led = Led([LEADER, SECOND, THIRD], min_isr=7)
    led.partition.check_in_sync()


def test_a_follower_that_has_caught_up_is_proposed_for_the_isr_and_counts_from_then_on() -> None:
    led = Led([LEADER, SECOND])
    led.append(5)
    led.fetched(SECOND, 5)
    assert led.log.high_watermark == 5
    led.fetched(THIRD, 4)
    assert led.wishes == [], "it lacks what is acknowledged"
    led.fetched(THIRD, 5, broker_epoch=33)
    assert led.wishes == [InSyncChange(EPOCH, 1, ((LEADER, -1), (SECOND, 9), (THIRD, 33)))]
    led.append(1)
    led.fetched(SECOND, 6)
    led.clock.advance(MAX_LAG_MS + 1)
    led.fetched(SECOND, 6)
    assert led.log.high_watermark == 5, "the controller may have made it a member already"
    led.leadership.refused(led.wishes[0])
    led.partition.advance_high_watermark()
    assert led.log.high_watermark == 6


def test_the_high_watermark_waits_for_a_replica_that_may_join_the_isr() -> None:
    led = Led([LEADER])
    led.append(2)
    led.fetched(THIRD, 2)
    led.leadership.refused(led.wishes[0])
    led.append(1)
    assert led.log.high_watermark == 2
    led.clock.advance(MAX_LAG_MS + 1)
    led.partition.drop_laggards()
    assert led.log.high_watermark == 3, "but not without a limit"


def test_the_high_watermark_does_not_wait_for_a_replica_that_may_not_join_the_isr() -> None:
    """The follower's disk is full: it fetches the next records, and cannot write them."""
    led = Led([LEADER])
    led.append(2)
    led.fetched(THIRD, 2)
    led.leadership.refused(led.wishes[0], is_ineligible=True)
    led.append(1)
    assert led.log.high_watermark == 3


def test_a_dead_follower_is_not_proposed_for_the_isr_nor_waited_for() -> None:
    led = Led([LEADER])
    led.dead.add(THIRD)
    led.append(2)
    led.fetched(THIRD, 2)
    led.append(1)
    assert led.wishes == []
    assert led.log.high_watermark == 3


def test_a_follower_joins_the_isr_only_after_it_has_reached_the_epoch_start_offset() -> None:
    led = Led([LEADER, SECOND, THIRD])
    led.append(4)
    led.partition.become_leader(
        PartitionState(0, LEADER, EPOCH + 1, [LEADER, SECOND, THIRD], [LEADER, SECOND], 2), led.rules
    )
    assert led.leadership.epoch_start_offset == 4
    led.fetched(THIRD, 3)
    assert led.wishes == []
    led.fetched(THIRD, 4)
    assert [wish.node_ids for wish in led.wishes] == [(LEADER, SECOND, THIRD)]


def test_a_follower_that_lags_longer_than_the_maximum_is_removed_from_the_isr() -> None:
    led = Led([LEADER, SECOND, THIRD])
    led.append(5)
    led.fetched(SECOND, 5)
    led.clock.advance(MAX_LAG_MS)
    led.partition.drop_laggards()
    assert led.wishes == []
    led.clock.advance(1)
    led.partition.drop_laggards()
    assert [wish.node_ids for wish in led.wishes] == [(LEADER, SECOND)]
    assert led.log.high_watermark == 0, "the replica that is behind counts until the controller has removed it"
    led.leadership.granted(led.wishes[0], [LEADER, SECOND], 2)
    led.partition.advance_high_watermark()
    assert led.log.high_watermark == 5


def test_a_follower_that_fetches_up_to_the_previous_end_offset_does_not_lag() -> None:
    led = Led([LEADER, SECOND, THIRD])
    for _ in range(4):
        led.append(1)
        end = led.log.log_end_offset
        for node_id in (SECOND, THIRD):
            led.fetched(node_id, end - 1)
        led.clock.advance(MAX_LAG_MS // 2)
        led.partition.drop_laggards()
    assert led.wishes == []


def test_an_older_partition_epoch_does_not_change_the_isr() -> None:
    led = Led([LEADER, SECOND, THIRD])
    led.state.partition_epoch, led.state.isr = 4, [LEADER, SECOND]
    led.partition.become_leader(led.state, led.rules)
    assert led.leadership.in_sync == (LEADER, SECOND)
    led.state.partition_epoch, led.state.isr = 3, [LEADER]
    led.partition.become_leader(led.state, led.rules)
    assert led.leadership.in_sync == (LEADER, SECOND)


def test_a_broker_without_a_replica_cannot_copy() -> None:
    led = Led([LEADER])
    with pytest.raises(BrokerError) as caught:
        led.fetched(77, 0)
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("asked", "found"), [(2, (2, 3)), (3, (2, 3)), (4, (2, 3)), (5, (5, 3)), (6, (-1, -1))], ids=lambda v: str(v)
)
def test_an_epoch_without_records_ends_where_it_began(asked: int, found: tuple[int, int]) -> None:
    led = Led([LEADER])
    led.log.append(payload([b"a"] * 3), leader_epoch=2)
    assert led.partition.end_offset_for_epoch(asked) == found


# --- waiting


async def test_a_record_is_waited_for_until_it_is_replicated() -> None:
    led = Led([LEADER, SECOND])
    offset = led.append()
    replicated = led.partition.replicated(offset, 60)
    assert not replicated.is_complete
    led.fetched(SECOND, offset + 1)
    assert replicated.result() is ErrorCode.NONE
    assert led.partition.is_replicated(offset)


async def test_waiting_ends_with_the_leadership() -> None:
    led = Led([LEADER, SECOND])
    offset = led.append()
    replicated = led.partition.replicated(offset, 60)
    led.partition.become_follower(PartitionState(0, SECOND, EPOCH + 1, [LEADER, SECOND], [SECOND], 2))
    assert replicated.result() is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert led.partition.replicated(offset, 60).result() is ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(BrokerError):
        led.append()


async def test_waiting_for_replication_ends_at_the_timeout(autojump_clock: trio.testing.MockClock) -> None:
    led = Led([LEADER, SECOND])
    told: list[tuple[str, ErrorCode]] = []

    def tell(name: str, outcome: Pending[ErrorCode]) -> None:
        outcome.when_complete(lambda: told.append((name, outcome.result())))

    for name, timeout_s in (("first", 60), ("hasty", 1), ("last", 60)):
        tell(name, led.partition.replicated(led.append(), timeout_s))
    await trio.sleep(2)
    led.partition.give_up_late(trio.current_time())
    led.fetched(SECOND, 1)
    tell("at once", led.partition.replicated(0))
    led.partition.retire()
    assert told == [
        ("hasty", ErrorCode.REQUEST_TIMED_OUT),
        ("first", ErrorCode.NONE),
        ("at once", ErrorCode.NONE),
        ("last", ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ]


async def test_replication_to_a_shrunken_isr_is_not_enough_replicas_after_append() -> None:
    led = Led([LEADER, SECOND], min_isr=2)
    offset = led.append()
    led.fetched(SECOND, offset + 1)
    led.state.isr, led.state.partition_epoch = [LEADER], 2
    led.partition.become_leader(led.state, led.rules)
    assert led.partition.replicated(offset, 1).result() is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


async def test_deletion_of_records_waits_for_the_log_start_of_all_live_replicas(
    autojump_clock: trio.testing.MockClock,
) -> None:
    led = Led([LEADER, SECOND])
    led.append(5)
    led.dead.add(THIRD)
    led.fetched(SECOND, 5)
    led.log.advance_log_start(4)
    hasty, deleted = led.partition.deleted_everywhere(4, 1), led.partition.deleted_everywhere(4, 60)
    await trio.sleep(2)
    led.partition.give_up_late(trio.current_time())
    assert (hasty.result(), deleted.is_complete) == (ErrorCode.REQUEST_TIMED_OUT, False)
    led.fetched(SECOND, 5, log_start_offset=4)
    assert (deleted.result(), led.partition.low_watermark) == (ErrorCode.NONE, 4)
    lost = led.partition.deleted_everywhere(5, 60)
    led.partition.retire()
    assert lost.result() is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_isr_shrinks_and_expands_are_counted_however_the_leader_learns_of_them() -> None:
    led = Led([LEADER, SECOND, THIRD])
    led.append(1)
    led.clock.advance(MAX_LAG_MS + 1)
    led.fetched(SECOND, 1)
    led.partition.drop_laggards()
    (shrink,) = led.wishes
    led.leadership.granted(shrink, [LEADER, SECOND], 2)
    assert (led.rules.counts.shrinks, led.rules.counts.expands) == (1, 0)
    led.fetched(THIRD, 1)
    led.leadership.update(PartitionState(0, LEADER, EPOCH, [LEADER, SECOND, THIRD], [LEADER, SECOND, THIRD], 3))
    led.leadership.granted(led.wishes[-1], [LEADER, SECOND, THIRD], 3)
    assert (led.rules.counts.shrinks, led.rules.counts.expands) == (1, 1), "the metadata brought it before the answer"
    led.leadership.update(PartitionState(0, LEADER, EPOCH, [LEADER, SECOND, THIRD], [LEADER, SECOND], 4))
    assert led.rules.counts.shrinks == 1, "the controller's own change"
