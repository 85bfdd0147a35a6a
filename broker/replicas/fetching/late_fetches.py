"""Delayed fetches of followers without a task each: every acknowledged record needs one from each follower.

The event that wakes them, mostly an append, completes before they are checked again: so they include all records that
are appended in the same turn of the event loop, and one task answers all of them.
"""

from __future__ import annotations

import math
from typing import Protocol

import trio

from ...server.timers import Timer, TimerQueue


class LateFetch(Protocol):
    """A delayed fetch without a task (`handlers.fetch_now.FollowerFetch`)."""

    deadline: float
    """In trio's clock."""

    def look_again(self, *, is_last: bool) -> bool:
        """Answer if enough records are available or this is the last attempt; return whether it answered.

        Never raises.
        """


class LateFetches:
    """A set of the delayed fetches without a task of one broker."""

    def __init__(self) -> None:
        self._parked: set[LateFetch] = set()
        self._woken: list[LateFetch] = []
        self._answering = trio.lowlevel.ParkingLot()
        self._timers = TimerQueue()
        self._alarm: Timer | None = None
        """The timer of the earliest deadline, or an earlier time."""

    def __len__(self) -> int:
        return len(self._parked)

    def park(self, fetch: LateFetch) -> None:
        """Delay a fetch until it is woken, at most until its deadline."""
        self._parked.add(fetch)
        if self._alarm is None or fetch.deadline < self._alarm.deadline:
            self._set_alarm(fetch.deadline)

    def wake(self, fetch: LateFetch) -> None:
        """Check a fetch again as soon as the present turn of the event loop is done."""
        self._woken.append(fetch)
        self._answering.unpark_all()

    def stop(self) -> None:
        """Answer all delayed fetches now."""
        for fetch in list(self._parked):
            self._look_again(fetch, is_last=True)

    async def run(self) -> None:
        """Answer delayed fetches until cancelled."""
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
