"""Busy polling: a wait for sockets that looks for events for some microseconds before the thread sleeps.

To put a thread to sleep and to wake it takes as much processor time as a small request, and doubles the client's round
trip. So while requests follow each other within microseconds the event loop does not sleep at once. As KVM's halt
polling does, the window grows while sleeps are short, and falls to zero after a long one: at idle, and while requests
come less often than once in `SHORT_SLEEPS` windows, nothing is polled. It takes two short sleeps in a row: a consumer's
next Fetch, which follows each record soon and is followed by a long wait for the next record, begins no polling.
Sockets that are ready together share the cost of a sleep, and leave the processor to their clients meanwhile, so they
end the polling.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Protocol

from .processors import processor_count

FIRST_WINDOW_S = 1e-5
SHORT_SLEEPS = 2
"""A sleep is short if it lasts no longer than this number of largest windows, the time of waking up included."""
MOST_MISSES = 4
"""The misses in a row of the largest window after which nothing is polled for `WAITS_AT_REST` waits."""
WAITS_AT_REST = 256
LATE_WINDOWS = 2
"""A poll that ends later than this number of windows shows that another thread has used the processor meanwhile."""
FEWEST_PROCESSORS = 2
"""With fewer processors a client on the same machine could not send its next request while the broker polls."""

Events = list[tuple[int, int]]


class EventSource(Protocol):
    """A view of `select.epoll`."""

    def poll(self, timeout: float | None = None, maxevents: int = -1, /) -> Events: ...


def never() -> bool:
    """Return False: there is no other work."""
    return False


class BusyPolling:
    """An adaptive window, in seconds, for which a wait polls before it sleeps."""

    def __init__(
        self,
        limit_us: int,
        *,
        has_other_work: Callable[[], bool] = never,
        clock: Callable[[], float] = perf_counter,
        processors: Callable[[], float] = processor_count,
    ) -> None:
        """Start with a window of zero, which never exceeds ``limit_us`` microseconds.

        Nothing is ever polled with fewer than two ``processors``, nor while threads of this process have
        ``has_other_work``, which would get less of them.
        """
        self._limit_s = limit_us / 1e6 if limit_us and processors() >= FEWEST_PROCESSORS else 0.0
        self._has_other_work = has_other_work
        self._clock = clock
        self._misses = 0
        self._waits_left = 0
        """The waits until the window may grow again."""
        self._has_slept_shortly = False
        """Whether the latest sleep was short."""
        self.window_s = 0.0

    def wait(self, source: EventSource, longest_s: float, most_events: int) -> Events:
        """Return the events of ``source`` once there are any, or an empty list after ``longest_s`` seconds."""
        if not self._limit_s or self._has_other_work():
            return source.poll(longest_s, most_events)
        clock = self._clock
        begun_s = now_s = clock()
        window_s = self.window_s
        if window_s:
            end_s = begun_s + min(window_s, longest_s)
            while now_s < end_s:
                events = source.poll(0, most_events)
                if events:
                    self._misses = 0
                    if len(events) > 1:
                        self._close_window()
                    return events
                now_s = clock()
            if now_s > begun_s + LATE_WINDOWS * self._limit_s:
                self._rest()
        events = source.poll(max(longest_s - (now_s - begun_s), 0), most_events)
        if len(events) > 1:
            self._close_window()
        else:
            self._adapt(clock() - begun_s)
        return events

    def _adapt(self, waited_s: float) -> None:
        """Choose the next window after a wait of ``waited_s`` that polling did not end."""
        if self._waits_left:
            self._waits_left -= 1
        elif waited_s > SHORT_SLEEPS * self._limit_s:
            self._close_window()
        elif not self._has_slept_shortly:
            self._has_slept_shortly = True
        elif self.window_s < self._limit_s:
            self.window_s = min(max(FIRST_WINDOW_S, 2 * self.window_s), self._limit_s)
        else:
            self._misses += 1
            if self._misses >= MOST_MISSES:
                self._rest()

    def _close_window(self) -> None:
        """Poll no more before the next short sleeps."""
        self.window_s = 0.0
        self._has_slept_shortly = False

    def _rest(self) -> None:
        self._misses = 0
        self.window_s = 0.0
        self._waits_left = WAITS_AT_REST
