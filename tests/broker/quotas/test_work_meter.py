"""The meter of work: it counts steps but not waits, and does not change the work."""

from __future__ import annotations

import time

import pytest
import trio

from gregor.broker.quotas.work_meter import WorkMeter, metered

STEP_NS = 2_000_000


def busy() -> None:
    until = time.perf_counter_ns() + STEP_NS
    while time.perf_counter_ns() < until:
        pass


async def test_the_work_meter_counts_every_step_of_a_task(autojump_clock: trio.testing.MockClock) -> None:
    async def work() -> str:
        for _ in range(3):
            busy()
            await trio.sleep(10)
        return "done"

    meter = WorkMeter()
    assert await metered(work(), meter) == "done"
    assert meter.elapsed_ns >= 3 * STEP_NS


async def test_work_of_other_tasks_is_not_counted() -> None:
    async def work() -> None:
        await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()

    async def somebody_else() -> None:
        while True:
            busy()
            await trio.lowlevel.checkpoint()

    meter = WorkMeter()
    began_ns = time.perf_counter_ns()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(somebody_else)
        await trio.lowlevel.checkpoint()
        await metered(work(), meter)
        nursery.cancel_scope.cancel()
    others_ns = STEP_NS
    assert meter.elapsed_ns <= time.perf_counter_ns() - began_ns - others_ns


async def test_the_present_step_can_be_read_from_inside() -> None:
    meter = WorkMeter()

    async def work() -> int:
        busy()
        return meter.elapsed_ns

    assert await metered(work(), meter) >= STEP_NS


async def test_errors_and_cancellation_reach_the_work() -> None:
    ended = []

    async def wait_forever() -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append("cancelled")

    async def fail() -> None:
        await trio.lowlevel.checkpoint()
        raise LookupError("a bug")

    with trio.move_on_after(0):
        await metered(wait_forever(), WorkMeter())
    assert ended == ["cancelled"]
    with pytest.raises(LookupError, match="a bug"):
        await metered(fail(), WorkMeter())
