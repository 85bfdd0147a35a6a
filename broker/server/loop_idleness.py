"""The state of trio's event loop that decides whether a task may wait outside of that loop.

A task that blocks in a system call of its own holds up all other tasks. That does no harm while no other task is
scheduled, no deadline expires, and none of the descriptors that trio waits for becomes ready (worker threads and
signals have one too). A task cannot see the rest of its batch, so an instrument notes the scheduled tasks; the
deadlines and the descriptor of trio's epoll set have no public names.

The instrument costs a microsecond for each step of each task. It is removed for a while if other tasks or descriptors
have nearly always ended the wait.
"""

from __future__ import annotations

from typing import Any

import trio

LONGEST_WAIT_S = 1.0
MOST_INTERRUPTIONS = 4
"""Interrupted waits in a row after which no more are tried for `SUSPENDED_PASSES`."""
SUSPENDED_PASSES = 64
SETTLING_PASSES = 2
"""Passes of the asking task through trio's loop after which the instrument has noted all scheduled tasks: those that
were scheduled before it was in place are in the present batch or in the next one."""


class LoopIdleness(trio.abc.Instrument):
    """An instrument that tells for how long nothing but one task and the ready descriptors need the event loop."""

    def __init__(self) -> None:
        self._scheduled: set[trio.lowlevel.Task] = set()
        self._runner = _runner()
        self._passes_left = SETTLING_PASSES
        """The passes through trio's loop until the next wait may be tried."""
        self._interruptions = 0
        self.descriptor: int | None = None
        """The descriptor of trio's own epoll set; None if this version of trio or this clock has none to wait for."""
        if self._runner is not None:
            self.descriptor = self._runner.io_manager._epoll.fileno()
            trio.lowlevel.add_instrument(self)

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        self._scheduled.add(task)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._scheduled.discard(task)

    @property
    def is_suspended(self) -> bool:
        """Whether the next waits are trio's: no task is noted, and `idle_s` returns 0 for many passes."""
        return self._runner is None or self._passes_left > SETTLING_PASSES

    def idle_s(self) -> float:
        """Return for how long, in seconds, the running task may wait for `descriptor` and its own ones; 0: not now.

        After 0 the caller must let trio's loop pass once.
        """
        if self._passes_left:
            self._passes_left -= 1
            if self._passes_left == SETTLING_PASSES:
                trio.lowlevel.add_instrument(self)
            return 0.0
        if self._runner is None:
            return 0.0
        if self._runner.waiting_for_idle:
            # A task of a test waits until all tasks are blocked, which trio notices only in its own wait.
            self._suspend()
            return 0.0
        deadline: float = self._runner.deadlines.next_deadline()
        idle_s = 0.0 if self._scheduled else min(deadline - trio.current_time(), LONGEST_WAIT_S)
        if idle_s <= 0:
            self.interrupted()
        return idle_s

    def quiet_s(self, besides: trio.lowlevel.Task | None) -> float:
        """Return as `idle_s`, where the running task is another one and the task ``besides`` may be scheduled.

        Nothing is counted, and no pass of trio's loop is due after 0.
        """
        if self._passes_left or self._runner is None or self._runner.waiting_for_idle:
            return 0.0
        if self._scheduled and self._scheduled != {besides}:
            return 0.0
        deadline: float = self._runner.deadlines.next_deadline()
        return max(min(deadline - trio.current_time(), LONGEST_WAIT_S), 0.0)

    def uninterrupted(self) -> None:
        """Note that a wait has ended by the caller's own descriptors."""
        self._interruptions = 0

    def interrupted(self) -> None:
        """Note that other tasks or descriptors have kept the caller from waiting."""
        self._interruptions += 1
        if self._interruptions >= MOST_INTERRUPTIONS:
            self._suspend()

    def _suspend(self) -> None:
        self._interruptions = 0
        self._passes_left = SUSPENDED_PASSES + SETTLING_PASSES
        trio.lowlevel.remove_instrument(self)
        self._scheduled.clear()

    def close(self) -> None:
        """Remove the instrument if it is in place."""
        if self._runner is not None and self._passes_left <= SETTLING_PASSES:
            trio.lowlevel.remove_instrument(self)


def _runner() -> Any:
    """Return trio's runner, if it waits with epoll and by the system's clock; None if it does not, as in tests.

    In guest mode a wait would block the loop of trio's host.
    """
    from trio._core import _run

    runner = _run.GLOBAL_RUN_CONTEXT.runner
    has_parts = hasattr(getattr(runner, "io_manager", None), "_epoll")
    has_parts = has_parts and hasattr(runner, "deadlines") and hasattr(runner, "waiting_for_idle")
    if not has_parts or getattr(runner, "is_guest", True):
        return None
    return runner if isinstance(runner.clock, _run.SystemClock) else None
