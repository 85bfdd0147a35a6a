"""The synchronization of a consumer's background tasks with its user's calls for records.

A rebalance revokes partitions and runs the user's listeners, and an error must be raised. Neither may happen while
the user processes records, so both wait here for the user's next `poll`, as in Kafka's ConsumerCoordinator.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

import trio

from ..errors import copied_error


class PollBoundary:
    """A hand-over between background tasks (`hand_over`, `tell`, `wake`) and the user's task (`arrive`, `meet`,
    `wait`).

    It holds at most one step or error of each background task, as each task waits until its own was handled.
    """

    def __init__(self) -> None:
        self.is_pending = False
        """Whether `meet` has a step to run or an error to raise."""
        self._steps: deque[_Step] = deque()
        self._errors: deque[_ToldError] = deque()
        self._meeting = trio.Lock()
        self._news = trio.Event()
        self._waiting_count = 0
        self._arrived_at = 0.0
        self._arrival = trio.Event()

    # --- background tasks ---

    async def hand_over(self, act: Callable[[], Awaitable[None]]) -> None:
        """Let the user's next poll run `act` once, and wait until `act` has ended, also by an exception.

        If the caller is cancelled before `act` has begun, `act` never runs.
        """
        step = _Step(act)
        self._steps.append(step)
        self._attract()
        try:
            await step.is_over.wait()
        finally:
            if step in self._steps:
                self._steps.remove(step)
                self._note_pending()

    async def tell(self, error: Exception) -> None:
        """Let the user's next poll raise `error`, and wait until the user polls again after that.

        The caller then checks whether the error persists: the user may have acted on it.
        """
        told = _ToldError(error)
        self._errors.append(told)
        self._attract()
        try:
            await told.is_raised.wait()
        finally:
            if told in self._errors:
                self._errors.remove(told)
                self._note_pending()
        await self._arrival.wait()

    def wake(self) -> None:
        """Wake the task that waits in `wait`: there are records, or steps to run."""
        self._news.set()

    def absence_s(self) -> float:
        """Return the seconds since the user last asked for records, 0 while the user is waiting for some (KIP-62)."""
        return 0.0 if self._waiting_count else trio.current_time() - self._arrived_at

    # --- the user's task ---

    def arrive(self) -> None:
        """Note that the user polls."""
        self._arrived_at = trio.current_time()
        self._arrival.set()

    async def meet(self) -> None:
        """Run the steps that were handed over, then raise the first pending error.

        A step that fails, or is cancelled, raises its exception here and does not run again.
        """
        async with self._meeting:
            while self._steps:
                step = self._steps.popleft()
                self._note_pending()
                try:
                    await step.act()
                finally:
                    step.is_over.set()
            if self._errors:
                told = self._errors.popleft()
                told.is_raised.set()
                self._arrival = trio.Event()
                self._note_pending()
                raise copied_error(told.error)

    async def wait(self) -> None:
        """Wait for records or steps to run; a user who waits here is polling, however long the wait is.

        No wake-up is missed after the caller's last check, provided that the caller has not awaited since that
        check.
        """
        if self._news.is_set():
            self._news = trio.Event()
        self._waiting_count += 1
        self._arrival.set()
        try:
            await self._news.wait()
        finally:
            self._waiting_count -= 1
            self._arrived_at = trio.current_time()

    def _attract(self) -> None:
        self.is_pending = True
        self._news.set()

    def _note_pending(self) -> None:
        self.is_pending = bool(self._steps or self._errors)


class _Step:
    """A step of a rebalance that waits for the user's next poll."""

    __slots__ = ("act", "is_over")

    def __init__(self, act: Callable[[], Awaitable[None]]) -> None:
        self.act = act
        self.is_over = trio.Event()


class _ToldError:
    """An error that waits for the user's next poll."""

    __slots__ = ("error", "is_raised")

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.is_raised = trio.Event()
