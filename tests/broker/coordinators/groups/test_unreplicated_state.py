"""State that a coordinator's followers do not have yet: no client sees it (Kafka `GroupMetadata`)."""

from __future__ import annotations

from typing import Any

import pytest
from trio.testing import MockClock

from gregor.broker.coordinators.groups.classic_protocol import Committer
from gregor.broker.coordinators.groups.offset_service import FetchedOffset, OffsetToCommit
from gregor.broker.coordinators.internal_log.coordinator_log import TransactionalProducer
from gregor.protocol.errors import ErrorCode
from gregor.protocol.topic_partition import TopicPartition

NONE = ErrorCode.NONE
T0 = TopicPartition("t", 0)
PRODUCER = TransactionalProducer(7, 0)


def commit(bench: Any, offset: int, producer: TransactionalProducer | None = None) -> None:
    errors = bench.groups.commit(Committer("g"), {T0: OffsetToCommit(offset)}, producer)
    assert errors == {T0: NONE}


def fetch(bench: Any, *, stable: bool = False) -> FetchedOffset:
    fetched: dict[TopicPartition, FetchedOffset] = bench.groups.fetch_offsets("g", [T0], require_stable=stable)
    return fetched[T0]


async def test_a_commit_is_seen_once_it_is_replicated(bench: Any, autojump_clock: MockClock) -> None:
    await bench.start()
    commit(bench, 5)
    bench.log().cut_off = True
    commit(bench, 6)
    commit(bench, 7)
    assert fetch(bench) == FetchedOffset(5)
    assert fetch(bench, stable=True).error is ErrorCode.UNSTABLE_OFFSET_COMMIT
    bench.log().settle_all()
    assert fetch(bench, stable=True) == FetchedOffset(7)


async def test_the_first_committed_offset_of_a_group_is_invisible_until_it_is_replicated(
    bench: Any, autojump_clock: MockClock
) -> None:
    await bench.start()
    bench.log().cut_off = True
    commit(bench, 5)
    assert fetch(bench) == FetchedOffset()
    assert bench.groups.fetch_offsets("g", None, require_stable=False) == {}


async def test_a_commit_that_is_lost_with_its_leader_was_never_seen(bench: Any, autojump_clock: MockClock) -> None:
    await bench.start()
    commit(bench, 5)
    bench.log().cut_off = True
    commit(bench, 6)
    bench.log().settle_all(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert fetch(bench) == FetchedOffset(5)


async def test_an_offset_deleted_before_replication_of_its_commit_stays_deleted(
    bench: Any, autojump_clock: MockClock
) -> None:
    await bench.start()
    bench.log().cut_off = True
    commit(bench, 5)
    assert bench.groups.delete_offsets("g", [T0]) == {T0: NONE}
    bench.log().settle_all()
    assert fetch(bench, stable=True) == FetchedOffset()


async def test_the_later_of_two_commits_counts_even_if_it_was_transactional(
    bench: Any, autojump_clock: MockClock
) -> None:
    await bench.start()
    index = bench.groups.partition_of("g")
    bench.log().cut_off = True
    commit(bench, 5)
    commit(bench, 6, PRODUCER)
    bench.groups.transaction_ended(index, PRODUCER.producer_id, is_commit=True)
    bench.log().settle_all()
    assert fetch(bench, stable=True) == FetchedOffset(6)


async def test_an_assignment_is_given_out_once_it_is_replicated(bench: Any, autojump_clock: MockClock) -> None:
    await bench.start()
    joined = await bench.join().wait()
    bench.log().cut_off = True
    synced = bench.sync(joined, {joined.member_id: b"all"})
    assert (synced.is_complete, bench.state()) == (False, "CompletingRebalance")
    bench.log().settle_all()
    assert (synced.result().error_code, bytes(synced.result().assignment), bench.state()) == (NONE, b"all", "Stable")


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REBALANCE_IN_PROGRESS),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
    ],
)
async def test_sync_group_fails_if_the_assignment_is_not_replicated(
    bench: Any, autojump_clock: MockClock, code: ErrorCode, told: ErrorCode
) -> None:
    await bench.start()
    joined = await bench.join().wait()
    bench.log().cut_off = True
    synced = bench.sync(joined, {joined.member_id: b"all"})
    bench.log().settle_all(code)
    assert (synced.result().error_code, bytes(synced.result().assignment)) == (told, b"")
    assert bench.state() == "PreparingRebalance"


async def test_sync_group_returns_no_assignment_of_an_ended_generation(bench: Any, autojump_clock: MockClock) -> None:
    await bench.start()
    joined = await bench.join().wait()
    bench.log().cut_off = True
    synced = bench.sync(joined, {joined.member_id: b"all"})
    bench.join()
    assert synced.result().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    bench.log().settle_all()
    assert bench.state() == "PreparingRebalance"
