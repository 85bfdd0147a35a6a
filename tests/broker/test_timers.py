"""Many deadlines in one task."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio
from trio.testing import MockClock

from gregor.broker.server.timers import TimerQueue


@pytest.fixture
async def timers() -> AsyncIterator[TimerQueue]:
    queue = TimerQueue()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(queue.run)
        yield queue
        nursery.cancel_scope.cancel()


async def test_timers_go_off_in_order_of_their_deadlines(timers: TimerQueue, autojump_clock: MockClock) -> None:
    gone_off: list[tuple[str, float]] = []
    began = trio.current_time()
    for name, delay_ms in (("late", 3_000), ("soon", 1_000), ("now", 0), ("also soon", 1_000)):
        timers.schedule(delay_ms, lambda name=name: gone_off.append((name, trio.current_time() - began)))  # type: ignore[misc]
    await trio.sleep(5)
    assert [name for name, _ in gone_off] == ["now", "soon", "also soon", "late"]
    assert [at for _, at in gone_off] == pytest.approx([0, 1, 1, 3], abs=0.1)


async def test_a_cancelled_timer_never_goes_off(timers: TimerQueue, autojump_clock: MockClock) -> None:
    gone_off: list[str] = []
    timer = timers.schedule(1_000, lambda: gone_off.append("cancelled"))
    timer.cancel()
    timer.move(10)
    await trio.sleep(2)
    assert gone_off == []
    assert not timer.is_pending


@pytest.mark.parametrize(("moved_to_ms", "expected_s"), [(5_000, 5.5), (1_000, 1.5)])
async def test_a_timer_can_be_moved_either_way_and_goes_off_once(
    timers: TimerQueue, autojump_clock: MockClock, moved_to_ms: int, expected_s: float
) -> None:
    began = trio.current_time()
    gone_off: list[float] = []
    timer = timers.schedule(3_000, lambda: gone_off.append(trio.current_time() - began))
    await trio.sleep(0.5)
    timer.move(moved_to_ms)
    await trio.sleep(20)
    assert gone_off == pytest.approx([expected_s], abs=0.1)


async def test_a_callback_can_schedule_timers_and_its_exception_affects_no_other_timer(
    timers: TimerQueue, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    gone_off: list[str] = []

    def faulty() -> None:
        timers.schedule(0, lambda: gone_off.append("child"))
        raise RuntimeError("a bug")

    timers.schedule(1_000, faulty)
    timers.schedule(1_000, lambda: gone_off.append("sibling"))
    await trio.sleep(2)
    assert sorted(gone_off) == ["child", "sibling"]
    assert "a bug" in caplog.text


async def test_entries_of_a_repeatedly_moved_timer_do_not_accumulate_in_the_queue(
    timers: TimerQueue, autojump_clock: MockClock
) -> None:
    timer = timers.schedule(10_000, lambda: None)
    for _ in range(1_000):
        timer.move(10_000)
        await trio.sleep(0.01)
    assert len(timers._heap) < 10


async def test_cancelled_timers_are_removed(timers: TimerQueue, autojump_clock: MockClock) -> None:
    """A client may delay and abandon any number of fetches of a day each."""
    gone_off: list[int] = []
    kept = [timers.schedule(5_000, lambda: gone_off.append(1)) for _ in range(10)]
    for _ in range(10_000):
        timers.schedule(86_400_000, lambda: None).cancel()
    assert len(timers._heap) < 3_000
    await trio.sleep(6)
    assert len(gone_off) == len(kept)
