"""What ends the wait of a task outside of trio's loop: other tasks, deadlines, threads and descriptors."""

from __future__ import annotations

import queue
import select
import socket
import threading
from collections.abc import Awaitable, Callable

import pytest
import trio
from outcome import Outcome
from trio.lowlevel import checkpoint
from trio.testing import MockClock

from gregor.broker.server import loop_idleness
from gregor.broker.server.loop_idleness import SETTLING_PASSES, SUSPENDED_PASSES, LoopIdleness
from gregor.broker.server.readiness import Readiness


def in_loop(scenario: Callable[[LoopIdleness], Awaitable[None]]) -> None:
    """Run a scenario with an instrument that has settled, by the system's clock."""

    async def settled() -> None:
        idleness = LoopIdleness()
        for _ in range(SETTLING_PASSES):
            assert idleness.idle_s() == 0
            await checkpoint()
        try:
            await scenario(idleness)
        finally:
            idleness.close()

    trio.run(settled)


def is_ready(idleness: LoopIdleness, timeout_s: float) -> bool:
    """Return whether trio's epoll set becomes readable while this task blocks."""
    assert idleness.descriptor is not None
    return bool(select.select([idleness.descriptor], [], [], timeout_s)[0])


def test_a_lone_task_may_wait() -> None:
    async def scenario(idleness: LoopIdleness) -> None:
        assert idleness.idle_s() == loop_idleness.LONGEST_WAIT_S
        assert not is_ready(idleness, 0)

    in_loop(scenario)


def test_no_wait_is_allowed_while_other_tasks_are_scheduled() -> None:
    async def scenario(idleness: LoopIdleness) -> None:
        async def neighbour() -> None:
            await checkpoint()
            seen.append(idleness.idle_s())

        async with trio.open_nursery() as nursery:
            seen: list[float] = []
            nursery.start_soon(neighbour)
            nursery.start_soon(neighbour)
            assert idleness.idle_s() == 0
        # The first of the two neighbours in the last batch saw the second, whichever that was.
        assert min(seen) == 0

    in_loop(scenario)


def test_a_deadline_bounds_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_idleness, "LONGEST_WAIT_S", 7200.0)

    async def scenario(idleness: LoopIdleness) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 3600)
            await trio.testing.wait_all_tasks_blocked()
            assert 0 < idleness.idle_s() <= 3600
            nursery.cancel_scope.cancel()
        assert idleness.idle_s() == loop_idleness.LONGEST_WAIT_S

    in_loop(scenario)


@pytest.mark.parametrize("source", ["thread", "socket"])
def test_threads_and_descriptors_of_other_tasks_end_the_wait(source: str) -> None:
    async def scenario(idleness: LoopIdleness) -> None:
        near, far = socket.socketpair()
        begin = threading.Event()

        async def neighbour() -> None:
            if source == "socket":
                await trio.lowlevel.wait_readable(near)
            else:
                await trio.to_thread.run_sync(begin.wait)
            ended.append(source)

        ended: list[str] = []
        with near, far:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(neighbour)
                await trio.testing.wait_all_tasks_blocked()
                assert idleness.idle_s() > 0
                assert not is_ready(idleness, 0)
                far.send(b"x")
                begin.set()
                assert is_ready(idleness, 30)
        assert ended == [source]

    in_loop(scenario)


def test_waits_are_suspended_after_many_interruptions() -> None:
    async def scenario(idleness: LoopIdleness) -> None:
        for _ in range(loop_idleness.MOST_INTERRUPTIONS):
            assert idleness.idle_s() > 0
            idleness.interrupted()
        for _ in range(SUSPENDED_PASSES + SETTLING_PASSES):
            assert idleness.idle_s() == 0
            await checkpoint()
        assert idleness.idle_s() > 0

    in_loop(scenario)


def test_no_wait_is_allowed_with_a_mock_clock() -> None:
    async def scenario() -> None:
        idleness = LoopIdleness()
        assert idleness.descriptor is None
        for _ in range(SETTLING_PASSES + SUSPENDED_PASSES):
            assert idleness.idle_s() == 0
        idleness.close()

    trio.run(scenario, clock=MockClock())


def test_sockets_are_served_beside_tasks_timers_and_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    # A wait that misses something lasts longer than the test may.
    monkeypatch.setattr(loop_idleness, "LONGEST_WAIT_S", 3600.0)
    rounds = 200

    async def scenario() -> None:
        readiness = Readiness()
        near, far = socket.socketpair()
        near.setblocking(False)
        served = 0

        def echo(_: int) -> bool:
            nonlocal served
            with_data = near.recv(100)
            served += len(with_data)
            near.send(with_data)
            return False

        def client() -> None:
            for _ in range(rounds):
                far.sendall(b"x")
                assert far.recv(1) == b"x"

        async def timers() -> None:
            for _ in range(20):
                await trio.sleep(0.001)

        async def threads() -> None:
            for _ in range(20):
                await trio.to_thread.run_sync(lambda: None)

        with near, far:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(readiness.run)
                readiness.watch(near.fileno(), echo)
                async with trio.open_nursery() as traffic:
                    traffic.start_soon(trio.to_thread.run_sync, client)
                    traffic.start_soon(timers)
                    traffic.start_soon(threads)
                assert served == rounds
                readiness.forget(near.fileno())
                nursery.cancel_scope.cancel()

    trio.run(scenario)


@pytest.mark.parametrize("disturbed_by", ["nothing", "another socket", "a task", "a thread", "a timer"])
def test_a_task_waits_for_its_socket_alone_unless_something_else_needs_the_loop(disturbed_by: str) -> None:
    async def scenario() -> None:
        readiness = Readiness()
        (near, far), (watched, peer) = socket.socketpair(), socket.socketpair()
        passes = SETTLING_PASSES + 2

        async def neighbour() -> None:
            if disturbed_by == "a thread":
                await trio.to_thread.run_sync(begin.wait)
            elif disturbed_by == "a timer":
                await trio.sleep_until(deadline)
            elif disturbed_by == "a task":
                await event.wait()

        with near, far, watched, peer:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(readiness.run)
                readiness.watch(watched.fileno(), lambda _: bool(watched.recv(1)) and False)
                begin, event, deadline = threading.Event(), trio.Event(), trio.current_time() + 3600
                nursery.start_soon(neighbour)
                for _ in range(passes):
                    peer.send(b"x")
                    await trio.sleep(0.001)
                assert not readiness.wait_alone(near.fileno())
                far.send(b"x")
                if disturbed_by == "another socket":
                    peer.send(b"x")
                elif disturbed_by == "a task":
                    event.set()
                elif disturbed_by == "a thread":
                    begin.set()
                    assert select.select([_epoll_descriptor()], [], [], 30)[0]
                elif disturbed_by == "a timer":
                    nursery.start_soon(trio.sleep, 0)
                assert readiness.wait_alone(near.fileno()) == (disturbed_by == "nothing")
                nursery.cancel_scope.cancel()

    trio.run(scenario)


def _epoll_descriptor() -> int:
    from trio._core import _run

    found: int = _run.GLOBAL_RUN_CONTEXT.runner.io_manager._epoll.fileno()
    return found


def test_there_is_no_wait_in_guest_mode() -> None:
    """A wait would block the loop of trio's host."""
    calls: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
    outcomes: list[Outcome[int | None]] = []

    async def descriptor() -> int | None:
        return LoopIdleness().descriptor

    trio.lowlevel.start_guest_run(descriptor, run_sync_soon_threadsafe=calls.put, done_callback=outcomes.append)
    while not outcomes:
        calls.get(timeout=30)()
    assert outcomes[0].unwrap() is None
