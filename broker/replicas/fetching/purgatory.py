"""Delayed fetches: requests of consumers and followers that wait, up to ``max_wait_ms``, for ``min_bytes`` of records.

The cases in which a delayed fetch is tried again or given up (as in Kafka's DelayedFetch):

- Case A: as many bytes were appended to its partitions as were missing.
- Case B: one of its partitions changed in another way: it was deleted or truncated, its leader changed, its last
  stable offset moved, or its high watermark if that is not simply the log end offset.
- Case C: its deadline has passed; the answer has the available records.
- Case D: its client disconnected; there is no answer.
- Case E: the broker stops; the answer has the available records.

The event of case A or B, mostly an append, completes before the fetch is tried again: at the end of the round of
sockets in which it happens, or else in a task of the purgatory. So the answer has all records of the round.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Protocol

import trio

from ...server.outcome import Outcome
from ...server.pending import Pending
from ...server.socket_rounds import SocketRounds
from ...server.timers import Timer, TimerQueue
from ..partition import Partition
from .partitions_at_rest import PartitionsAtRest


class FetchAttempts(Protocol):
    """A Fetch request that can be tried several times."""

    @property
    def missing_bytes(self) -> int:
        """The number of bytes without which the last attempt was not enough for an answer."""

    @property
    def at_rest(self) -> PartitionsAtRest | None:
        """The partitions of an idle follower's session, which are watched already."""

    @property
    def partitions(self) -> Iterable[Partition]:
        """The partitions that the last attempt has read."""

    @property
    def is_of_follower(self) -> bool:
        """Whether appended records count before they are replicated."""

    def try_again(self, *, has_changed: bool, is_last: bool) -> Outcome[Any] | None:
        """Return the outcome of the request, None if there are not enough records and ``is_last`` is not set.

        ``has_changed`` says whether the partitions must be looked up again.
        """


class WaitingFetch(Protocol):
    """A fetch in the purgatory: a `DelayedFetch`, or a `follower_lane_cy.FollowerLane` whose Fetch waits."""

    timer: Timer | None

    def try_again(self, is_last: bool) -> bool:
        """Complete the fetch if enough records are there or this is the last attempt; return whether it is complete."""


class DelayedFetch:
    """A fetch that waits for changes of its partitions (a `PartitionWaiter`)."""

    __slots__ = (
        "_attempts",
        "_has_changed",
        "_is_woken",
        "_missing_bytes",
        "_purgatory",
        "_watched",
        "pending",
        "timer",
    )

    def __init__(self, purgatory: Purgatory, attempts: FetchAttempts) -> None:
        self._purgatory = purgatory
        self._attempts = attempts
        self._is_woken = False
        self._has_changed = False
        self._missing_bytes = attempts.missing_bytes
        self._watched: list[Partition] = []
        self.pending: Pending[Any] = Pending(ends_with_client=True, on_cancel=partial(purgatory.give_up, self))
        self.timer: Timer | None = None

    def appended(self, size_bytes: int) -> None:
        self._missing_bytes -= size_bytes
        if self._missing_bytes <= 0:
            self._wake()

    def changed(self) -> None:
        self._has_changed = True
        self._wake()

    def _wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._purgatory.wake(self)

    def watch(self) -> None:
        """Begin to wait for changes of the partitions."""
        at_rest = self._attempts.at_rest
        if at_rest is not None and not at_rest.has_ended:
            at_rest.waiting = self
            return
        self._watched = list(self._attempts.partitions)
        for partition in self._watched:
            partition.watch(self, is_follower=self._attempts.is_of_follower)

    def unwatch(self) -> None:
        """Stop waiting."""
        for partition in self._watched:
            partition.unwatch(self)
        self._watched = []
        at_rest = self._attempts.at_rest
        if at_rest is not None and at_rest.waiting is self:
            at_rest.waiting = None

    def leave(self) -> None:
        """Stop waiting for good, and let no partition be watched for the session of a client that has disconnected."""
        self.unwatch()
        if self._attempts.at_rest is not None:
            self._attempts.at_rest.end()

    def try_again(self, is_last: bool) -> bool:
        """Complete the fetch if enough records are there or this is the last attempt; return whether it is complete."""
        has_changed, self._has_changed, self._is_woken = self._has_changed, False, False
        try:
            outcome = self._attempts.try_again(has_changed=has_changed, is_last=is_last)
        except Exception as error:
            self.unwatch()
            self.pending.fail(error)
            return True
        if outcome is None:
            self._missing_bytes = self._attempts.missing_bytes
            if has_changed:
                self.unwatch()
                self.watch()
            return False
        self.unwatch()
        if isinstance(outcome, Pending):
            self.pending.follow(outcome)
        else:
            self.pending.complete(outcome)
        return True


class Purgatory:
    """A registry of all delayed fetches of a broker (Kafka: DelayedOperationPurgatory); `run` must be running."""

    def __init__(self, rounds: SocketRounds | None = None) -> None:
        """Start empty; fetches that are woken in one of ``rounds`` are answered at its end."""
        self._rounds = rounds or SocketRounds()
        self._delayed: set[WaitingFetch] = set()
        self._woken: list[WaitingFetch] = []
        self._answering = trio.lowlevel.ParkingLot()
        self._timers = TimerQueue()
        self._is_stopping = False

    def __len__(self) -> int:
        return len(self._delayed)

    @property
    def is_stopping(self) -> bool:
        """Whether new fetches must not be delayed."""
        return self._is_stopping

    def delay(self, attempts: FetchAttempts, deadline: float) -> Pending[Any]:
        """Delay a fetch until there are enough records, at most until ``deadline`` in trio's clock."""
        fetch = DelayedFetch(self, attempts)
        self._delayed.add(fetch)
        fetch.watch()
        fetch.timer = self._timers.schedule_at(deadline, partial(self._try_again, fetch, is_last=True))
        return fetch.pending

    def hold(self, fetch: WaitingFetch, deadline: float) -> None:
        """Keep a fetch until `release`, and let it be completed at ``deadline``.

        Its timer is used again: the fetches of a busy follower would set thousands a second, of which none goes off.
        """
        self._delayed.add(fetch)
        if fetch.timer is None:
            fetch.timer = self._timers.schedule_at(deadline, partial(self._time_out, fetch))
        else:
            fetch.timer.move_to(deadline)

    def release(self, fetch: WaitingFetch) -> None:
        """Forget a fetch that is complete; its timer stays."""
        self._delayed.discard(fetch)

    def _time_out(self, fetch: WaitingFetch) -> None:
        fetch.timer = None
        self._try_again(fetch, is_last=True)

    def wake(self, fetch: WaitingFetch) -> None:
        """Try a fetch again at the end of the present round, or in the purgatory's task if there is none."""
        self._woken.append(fetch)
        if len(self._woken) == 1 and not self._rounds.defer(self._answer_woken):
            self._answering.unpark_all()

    def give_up(self, fetch: DelayedFetch) -> None:
        """Forget a fetch whose client has disconnected."""
        fetch.leave()
        self._forget(fetch)

    def stop(self) -> None:
        """Answer all delayed fetches, and delay no more."""
        self._is_stopping = True
        for fetch in list(self._delayed):
            self._try_again(fetch, is_last=True)

    async def run(self) -> None:
        """Answer delayed fetches until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._timers.run)
            while True:
                self._answer_woken()
                if self._woken:
                    await trio.lowlevel.checkpoint()
                else:
                    await self._answering.park()

    def _answer_woken(self) -> None:
        woken, self._woken = self._woken, []
        for fetch in woken:
            self._try_again(fetch)

    def _try_again(self, fetch: WaitingFetch, *, is_last: bool = False) -> None:
        if fetch in self._delayed and fetch.try_again(is_last):
            self._delayed.discard(fetch)
            if isinstance(fetch, DelayedFetch):
                self._forget(fetch)

    def _forget(self, fetch: DelayedFetch) -> None:
        self._delayed.discard(fetch)
        if fetch.timer is not None:
            fetch.timer.cancel()
