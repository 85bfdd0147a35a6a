"""Long work in worker threads, which are abandoned when their task is cancelled.

trio's own `to_thread.run_sync` keeps an exception of the function in a reference cycle (the exception, its traceback,
and a frame of trio's that holds the outcome), and with it everything that the function's frames refer to: megabytes for
a record batch, until the next garbage collection. Here the exception is returned as a value and raised in the task.
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
    """Return the result of ``function(*args)`` in a worker thread, or raise its exception.

    A cancelled task continues at once and abandons the thread, so a function that never ends cannot keep a broker from
    stopping. ``if_abandoned`` is called then, in the event loop's thread, as soon as the function no longer uses its
    arguments. ``limiter`` limits the number of threads, including abandoned ones.
    """
    job = _Job(function, args, if_abandoned)
    try:
        await trio.to_thread.run_sync(job.run, abandon_on_cancel=True, limiter=limiter)
    except trio.Cancelled:
        job.abandon()
        raise
    return job.result()


class _Job(Generic[T]):
    """A call of a function by a worker thread, for a task that may abandon it."""

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
        """Call the function in the worker thread, unless the job was abandoned before.

        An exception of the function is kept for `result`.
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
        """Abandon the job: call ``if_abandoned`` once the function has ended, perhaps now."""
        with self._lock:
            self._is_abandoned = True
            is_over = not self._is_running
        if is_over and self._if_abandoned is not None:
            self._if_abandoned()

    def result(self) -> T:
        """Return the function's result, or raise its exception, once: no reference to the exception is kept."""
        error, self._error = self._error, None
        if error is None:
            return self._results.pop()
        try:
            raise error
        finally:
            del error
