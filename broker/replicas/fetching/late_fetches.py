"""Parked fetches without a task: followers', of which each acknowledged record needs one from each follower.

What has woken them, mostly an append, goes on before they look: so they take along what is appended in the same turn of
the event loop, and one task answers all of them.
"""

from __future__ import annotations

import math
from typing import Protocol

import trio

from ...server.timers import Timer, TimerQueue


class LateFetch(Protocol):
    """A fetch whose answer is late (`handlers.fetch_now.FollowerFetch`)."""

    deadline: float
    """In trio's clock."""

    def look_again(self, *, is_last: bool) -> bool:
        """Answer if there is enough by now, or anyhow if this is the last time; returns whether it did.

        Never raises.
        """


class LateFetches:
    """Those of one broker."""

    def __init__(self) -> None:
        self._parked: set[LateFetch] = set()
        self._woken: list[LateFetch] = []
        self._answering = trio.lowlevel.ParkingLot()
        self._timers = TimerQueue()
        self._alarm: Timer | None = None
        """Goes off no later than the first deadline."""

    def __len__(self) -> int:
        return len(self._parked)

    def park(self, fetch: LateFetch) -> None:
        """Answer it at its deadline, unless it is woken before."""
        self._parked.add(fetch)
        if self._alarm is None or fetch.deadline < self._alarm.deadline:
            self._set_alarm(fetch.deadline)

    def wake(self, fetch: LateFetch) -> None:
        """Have it look again as soon as what goes on now is done."""
        self._woken.append(fetch)
        self._answering.unpark_all()

    def stop(self) -> None:
        """Have all answer now."""
        for fetch in list(self._parked):
            self._look_again(fetch, is_last=True)

    async def run(self) -> None:
        """Answer until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._timers.run)
            while True:
                woken, self._woken = self._woken, []
                for fetch in woken:
                    self._look_again(fetch)
                if not self._woken:
                    await self._answering.park()

    def _look_again(self, fetch: LateFetch, *, is_last: bool = False) -> None:
        if fetch in self._parked and fetch.look_again(is_last=is_last):
            self._parked.discard(fetch)

    def _set_alarm(self, deadline: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        delay_ms = math.ceil((deadline - trio.current_time()) * 1000)
        self._alarm = self._timers.schedule(delay_ms, self._answer_overdue)

    def _answer_overdue(self) -> None:
        now = trio.current_time()
        for fetch in [fetch for fetch in self._parked if fetch.deadline <= now]:
            self._look_again(fetch, is_last=True)
        self._alarm = None
        if self._parked:
            self._set_alarm(min(fetch.deadline for fetch in self._parked))
