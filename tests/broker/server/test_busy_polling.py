"""Tests of the bounded poll before a wait, with a clock that only polls and sleeps move."""

from __future__ import annotations

import pytest

from gregor.broker.server.busy_polling import FIRST_WINDOW_S, MOST_MISSES, WAITS_AT_REST, BusyPolling, Events

EVENT = [(3, 1)]
POLL_S = 1e-6
LIMIT_US = 40
LIMIT_S = LIMIT_US / 1e6
SOON_S, FAST_S, LATE_S = 5e-6, 6e-5, 1e-3
"""Times of the next event: in the first window; beyond the largest window but in a short sleep; after a long sleep."""


class Source:
    """A source whose next event comes a given time after the wait has begun."""

    def __init__(self, event_after_s: float | None) -> None:
        self.now_s = 0.0
        self.poll_count = 0
        self.sleep_count = 0
        self.poll_cost_s = POLL_S
        self._next_s: float | None = None
        self.event_after_s = event_after_s
        self.found: Events = EVENT

    def begin(self) -> None:
        self._next_s = None if self.event_after_s is None else self.now_s + self.event_after_s

    def poll(self, timeout: float | None = None, maxevents: int = -1, /) -> Events:
        assert timeout is not None
        assert timeout >= 0
        if timeout == 0:
            self.poll_count += 1
            self.now_s += self.poll_cost_s
            return self.found if self._next_s is not None and self.now_s >= self._next_s else []
        self.sleep_count += 1
        if self._next_s is None or self._next_s > self.now_s + timeout:
            self.now_s += timeout
            return []
        self.now_s = max(self.now_s, self._next_s)
        return self.found


def waits(polling: BusyPolling, source: Source, count: int, longest_s: float = 1.0) -> list[Events]:
    found = []
    for _ in range(count):
        source.begin()
        found.append(polling.wait(source, longest_s, 64))
    return found


def busy_polling(source: Source, limit_us: int = LIMIT_US, processors: float = 2.0) -> BusyPolling:
    return BusyPolling(limit_us, clock=lambda: source.now_s, processors=lambda: processors)


def test_fast_requests_are_found_by_polling_without_sleep() -> None:
    source = Source(SOON_S)
    polling = busy_polling(source)
    assert waits(polling, source, 50) == [EVENT] * 50
    assert source.sleep_count == 2  # the first ones, which open the window
    assert polling.window_s == FIRST_WINDOW_S


def test_the_window_grows_to_its_limit_and_rests_where_it_misses() -> None:
    source = Source(FAST_S)
    polling = busy_polling(source)
    widest = 0.0
    for _ in range(20):
        waits(polling, source, 1)
        widest = max(widest, polling.window_s)
    assert widest == LIMIT_S
    assert polling.window_s == 0.0
    polls = source.poll_count
    waits(polling, source, WAITS_AT_REST - 20)
    assert source.poll_count == polls


def test_short_and_long_waits_in_turn_are_never_polled_for() -> None:
    source = Source(None)
    polling = busy_polling(source)
    for _ in range(50):
        for source.event_after_s in (FAST_S, LATE_S):
            waits(polling, source, 1)
    assert (source.poll_count, source.sleep_count) == (0, 100)


def test_sparse_requests_are_never_polled_for() -> None:
    source = Source(LATE_S)
    waits(busy_polling(source), source, 100)
    assert (source.poll_count, source.sleep_count) == (0, 100)


def test_sockets_that_are_ready_together_are_not_polled_for() -> None:
    source = Source(SOON_S)
    polling = busy_polling(source)
    waits(polling, source, 10)
    assert polling.window_s > 0
    source.found = [(3, 1), (4, 1)]
    waits(polling, source, 1)
    polls = source.poll_count
    assert waits(polling, source, 50) == [source.found] * 50
    assert source.poll_count == polls
    source.found = EVENT
    waits(polling, source, 3)
    assert source.poll_count > polls


def test_one_long_sleep_ends_the_polling() -> None:
    source = Source(SOON_S)
    polling = busy_polling(source)
    waits(polling, source, 10)
    source.event_after_s = LATE_S
    waits(polling, source, 1)
    polls = source.poll_count
    waits(polling, source, 50)
    assert source.poll_count == polls
    assert polling.window_s == 0.0


def test_an_idle_wait_ends_at_its_limit() -> None:
    source = Source(None)
    polling = busy_polling(source)
    polling.window_s = LIMIT_S
    begun_s = source.now_s
    assert waits(polling, source, 1, longest_s=0.5) == [[]]
    assert source.now_s - begun_s == pytest.approx(0.5, abs=2 * POLL_S)
    assert waits(polling, source, 1, longest_s=2 * POLL_S) == [[]]


def test_polling_rests_while_other_threads_take_the_processor() -> None:
    source = Source(FAST_S)
    polling = busy_polling(source)
    polling.window_s = LIMIT_S
    source.poll_cost_s = 1e-2
    source.event_after_s = 5e-2
    waits(polling, source, 1)
    source.poll_cost_s = POLL_S
    source.event_after_s = SOON_S
    polls = source.poll_count
    waits(polling, source, WAITS_AT_REST)
    assert source.poll_count == polls
    waits(polling, source, MOST_MISSES + 1)
    assert source.poll_count > polls


@pytest.mark.parametrize(("limit_us", "processors"), [(0, 8.0), (LIMIT_US, 1.0), (LIMIT_US, 1.5)])
def test_there_is_no_polling_without_a_limit_or_a_second_processor(limit_us: int, processors: float) -> None:
    source = Source(SOON_S)
    waits(busy_polling(source, limit_us, processors), source, 50)
    assert (source.poll_count, source.sleep_count) == (0, 50)


def test_there_is_no_polling_while_threads_have_work() -> None:
    source = Source(SOON_S)
    has_work = True
    polling = BusyPolling(LIMIT_US, has_other_work=lambda: has_work, clock=lambda: source.now_s, processors=lambda: 2.0)
    waits(polling, source, 20)
    assert source.poll_count == 0
    has_work = False
    waits(polling, source, 3)
    assert source.poll_count > 0
