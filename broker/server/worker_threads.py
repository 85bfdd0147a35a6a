"""Long work beside the event loop: in a thread that is left behind when its task is cancelled.

trio's own `to_thread.run_sync` keeps what a function raises in a reference cycle (the exception, its traceback, and a
frame of trio's that holds the outcome), and with it all that the function's frames refer to: megabytes for a record
batch, until the garbage collector comes by. Here the exception comes back as a value and is raised in the task.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Generic, TypeVar, TypeVarTuple

import trio

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


async def run_in_worker(
    function: Callable[[*Ts], T],
    *args: *Ts,
    limiter: trio.CapacityLimiter | None = None,
    if_abandoned: Callable[[], None] | None = None,
) -> T:
    """Return what ``function(*args)`` returns in a worker thread, or raise what it raises.

    A cancelled task goes on at once; the thread does not, so a function that never ends cannot keep a broker from
    stopping. ``if_abandoned`` is called then, in the event loop's thread, as soon as the function no longer uses what
    it was given. ``limiter`` bounds the threads, those that were left behind included.
    """
    job = _Job(function, args, if_abandoned)
    try:
        await trio.to_thread.run_sync(job.run, abandon_on_cancel=True, limiter=limiter)
    except trio.Cancelled:
        job.abandon()
        raise
    return job.result()


class _Job(Generic[T]):
    """One call of a function, made by a worker thread for a task that may stop waiting for it."""

    def __init__(
        self, function: Callable[..., T], args: tuple[object, ...], if_abandoned: Callable[[], None] | None
    ) -> None:
        self._function = function
        self._args = args
        self._if_abandoned = if_abandoned
        self._token = trio.lowlevel.current_trio_token()
        self._lock = threading.Lock()
        self._is_running = False
        self._is_abandoned = False
        self._results: list[T] = []
        self._error: Exception | None = None

    def run(self) -> None:
        """Call the function, unless the job was abandoned before; for the worker thread.

        What the function raises is kept for `result`.
        """
        with self._lock:
            if self._is_abandoned:
                return
            self._is_running = True
        try:
            self._results.append(self._function(*self._args))
        except Exception as error:
            self._error = error
        finally:
            self._end()

    def _end(self) -> None:
        with self._lock:
            self._is_running = False
            if self._is_abandoned and self._if_abandoned is not None:
                with contextlib.suppress(trio.RunFinishedError):
                    self._token.run_sync_soon(self._if_abandoned)

    def abandon(self) -> None:
        """Have ``if_abandoned`` called once the function is over, which may be now."""
        with self._lock:
            self._is_abandoned = True
            is_over = not self._is_running
        if is_over and self._if_abandoned is not None:
            self._if_abandoned()

    def result(self) -> T:
        """What the function returned. Raises what it raised, once: nothing keeps the exception afterwards."""
        error, self._error = self._error, None
        if error is None:
            return self._results.pop()
        try:
            raise error
        finally:
            del error
