"""Work in threads: errors, and threads whose task no longer waits."""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref

import trio
import trio.testing

from gregor.broker.server.worker_threads import run_in_worker
from tests.waiting import PATIENCE_S


async def test_a_worker_thread_returns_the_result_of_the_function() -> None:
    assert await run_in_worker(divmod, 17, 5) == (3, 2)


class Memory:
    """An object that a failing function was using."""


async def test_a_caught_exception_of_a_worker_thread_keeps_no_objects_alive() -> None:
    kept: list[weakref.ref[Memory]] = []

    def fail() -> None:
        memory = Memory()
        kept.append(weakref.ref(memory))
        raise ValueError("no")

    gc.disable()
    try:
        with contextlib.suppress(ValueError):
            await run_in_worker(fail)
        assert kept[0]() is None
    finally:
        gc.enable()


async def test_cancelling_a_task_does_not_wait_for_its_hanging_worker_thread() -> None:
    may_end = threading.Event()
    is_running = threading.Event()
    given_back = trio.Event()

    def hang() -> None:
        is_running.set()
        may_end.wait(PATIENCE_S)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: run_in_worker(hang, if_abandoned=given_back.set))
        assert await trio.to_thread.run_sync(is_running.wait, PATIENCE_S)
        nursery.cancel_scope.cancel()
    assert not given_back.is_set()
    may_end.set()
    with trio.fail_after(PATIENCE_S):
        await given_back.wait()


async def test_if_abandoned_is_called_if_the_worker_thread_never_started() -> None:
    limiter = trio.CapacityLimiter(1)
    await limiter.acquire()
    given_back = trio.Event()
    with trio.CancelScope() as scope:
        scope.cancel()
        await run_in_worker(int, limiter=limiter, if_abandoned=given_back.set)
    assert given_back.is_set()
