"""Delayed fetches, by the lettered rules of `gregor.broker.replicas.fetching.purgatory`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from gregor.broker.replicas.fetching.purgatory import Purgatory
from gregor.broker.replicas.partition import Partition, PartitionWaiter
from gregor.broker.server.pending import Pending
from gregor.broker.server.socket_rounds import SocketRounds


class WatchedPartition:
    """A partition with the attributes that the purgatory uses."""

    def __init__(self) -> None:
        self.waiters: list[PartitionWaiter] = []

    def watch(self, waiter: PartitionWaiter, *, is_follower: bool = False) -> None:
        self.waiters.append(waiter)

    def unwatch(self, waiter: PartitionWaiter) -> None:
        self.waiters.remove(waiter)


@dataclass
class Attempts:
    """A fetch for 100 bytes from two partitions."""

    missing_bytes: int = 100
    is_of_follower: bool = False
    at_rest: None = None
    watched: list[WatchedPartition] = field(default_factory=lambda: [WatchedPartition(), WatchedPartition()])
    attempts: list[tuple[bool, bool]] = field(default_factory=list)
    """Of each further attempt: whether a partition has changed, and whether it was the last."""
    outcome: Any = None
    """The outcome of the next attempt, unless it is the last; an exception is raised."""

    @property
    def partitions(self) -> list[Partition]:
        return cast(list[Partition], self.watched)

    def try_again(self, *, has_changed: bool, is_last: bool) -> Any:
        self.attempts.append((has_changed, is_last))
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return "last" if is_last else self.outcome


@dataclass
class Delayed:
    """A fetch that is delayed for at most 30 seconds."""

    purgatory: Purgatory
    fetch: Attempts
    pending: Pending[str]

    def assert_left_nothing(self) -> None:
        assert len(self.purgatory) == 0
        assert not any(partition.waiters for partition in self.fetch.watched)


@pytest.fixture
def rounds() -> SocketRounds:
    return SocketRounds()


@pytest.fixture
async def delayed(nursery: trio.Nursery, autojump_clock: MockClock, rounds: SocketRounds) -> Delayed:
    autojump_clock.autojump_threshold = float("inf")
    purgatory, fetch = Purgatory(rounds), Attempts()
    nursery.start_soon(purgatory.run)
    delayed = Delayed(purgatory, fetch, purgatory.delay(fetch, trio.current_time() + 30))
    await wait_all_tasks_blocked()
    assert len(purgatory) == 1
    return delayed


async def test_case_a_appended_bytes_complete_a_delayed_fetch(delayed: Delayed) -> None:
    first, second = delayed.fetch.watched
    delayed.fetch.outcome = "answer"
    first.waiters[0].appended(60)
    await wait_all_tasks_blocked()
    assert not delayed.fetch.attempts
    second.waiters[0].appended(40)
    assert not delayed.fetch.attempts, "the turn of the append comes first"
    await wait_all_tasks_blocked()
    assert (delayed.fetch.attempts, delayed.pending.result()) == ([(False, False)], "answer")
    delayed.assert_left_nothing()


async def test_a_fetch_woken_in_a_round_is_answered_at_its_end(delayed: Delayed, rounds: SocketRounds) -> None:
    first, second = delayed.fetch.watched
    delayed.fetch.outcome = "answer"
    rounds.begin()
    first.waiters[0].appended(60)
    second.waiters[0].appended(60)
    assert not delayed.pending.is_complete, "other sockets of the round come first"
    rounds.end()
    assert (delayed.fetch.attempts, delayed.pending.result()) == ([(False, False)], "answer")
    delayed.assert_left_nothing()
    await wait_all_tasks_blocked()
    assert len(delayed.fetch.attempts) == 1


async def test_a_fetch_woken_before_a_round_is_answered_once(delayed: Delayed, rounds: SocketRounds) -> None:
    other = Attempts(outcome="other answer")
    pending = delayed.purgatory.delay(other, trio.current_time() + 30)
    delayed.fetch.outcome = "answer"
    delayed.fetch.watched[0].waiters[0].changed()
    rounds.begin()
    other.watched[0].waiters[0].changed()
    rounds.end()
    await wait_all_tasks_blocked()
    assert (delayed.pending.result(), pending.result()) == ("answer", "other answer")
    assert (len(delayed.fetch.attempts), len(other.attempts)) == (1, 1)
    delayed.assert_left_nothing()


async def test_case_b_a_changed_partition_completes_a_delayed_fetch(delayed: Delayed) -> None:
    delayed.fetch.outcome = "answer"
    delayed.fetch.watched[1].waiters[0].changed()
    await wait_all_tasks_blocked()
    assert (delayed.fetch.attempts, delayed.pending.result()) == ([(True, False)], "answer")
    delayed.assert_left_nothing()


async def test_a_delayed_fetch_waits_again_if_there_are_too_few_bytes(delayed: Delayed) -> None:
    first, second = delayed.fetch.watched
    delayed.fetch.missing_bytes = 7
    second.waiters[0].changed()
    await wait_all_tasks_blocked()
    assert [len(partition.waiters) for partition in delayed.fetch.watched] == [1, 1]
    delayed.fetch.outcome = "answer"
    first.waiters[0].appended(7)
    await wait_all_tasks_blocked()
    assert (delayed.fetch.attempts, delayed.pending.result()) == ([(True, False), (False, False)], "answer")
    delayed.assert_left_nothing()


async def test_an_exception_in_an_attempt_ends_the_delayed_fetch(delayed: Delayed) -> None:
    delayed.fetch.outcome = ValueError("a bug")
    delayed.fetch.watched[0].waiters[0].changed()
    await wait_all_tasks_blocked()
    with pytest.raises(ValueError, match="a bug"):
        delayed.pending.result()
    delayed.assert_left_nothing()


async def test_case_c_the_deadline_completes_a_delayed_fetch(delayed: Delayed, autojump_clock: MockClock) -> None:
    autojump_clock.jump(29.9)
    await wait_all_tasks_blocked()
    assert not delayed.pending.is_complete
    autojump_clock.jump(0.2)
    await wait_all_tasks_blocked()
    assert delayed.pending.result() == "last"
    delayed.assert_left_nothing()


async def test_case_d_a_client_that_disconnects_cancels_its_delayed_fetch(delayed: Delayed) -> None:
    assert delayed.pending.ends_with_client
    delayed.fetch.watched[0].waiters[0].changed()
    delayed.pending.cancel()
    delayed.assert_left_nothing()
    await wait_all_tasks_blocked()
    assert not delayed.fetch.attempts


async def test_case_e_a_stopping_broker_completes_its_delayed_fetches(delayed: Delayed) -> None:
    delayed.purgatory.stop()
    assert delayed.pending.result() == "last"
    delayed.assert_left_nothing()
    assert delayed.purgatory.is_stopping
