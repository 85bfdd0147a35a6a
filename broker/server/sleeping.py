"""The sleep of a task whose work is done where sockets are watched, until something is left to the task."""

from __future__ import annotations

import trio


class Sleep:
    """A place where one task sleeps; callbacks that act for the task wake it, also by an exception of theirs."""

    def __init__(self) -> None:
        self.task: trio.lowlevel.Task | None = None
        """The task that sleeps here, for which callbacks may act; None if it is awake."""
        self.failure: Exception | None = None
        """The exception that the task will raise when it wakes; None for none."""

    async def until_woken(self) -> None:
        """Sleep until `wake` is called. Raises `failure`."""
        self.task = trio.lowlevel.current_task()

        def stop_sleeping(_: object) -> trio.lowlevel.Abort:
            self.task = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(stop_sleeping)
        failure, self.failure = self.failure, None
        if failure is not None:
            try:
                raise failure
            finally:
                # The exception's traceback has this frame: the two would form a reference cycle.
                del failure

    def wake(self) -> None:
        """Wake the task if it sleeps."""
        if self.task is not None:
            task, self.task = self.task, None
            trio.lowlevel.reschedule(task)
