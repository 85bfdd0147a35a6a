"""Many deadlines in one task: sessions, rebalances, transactions.

A heartbeat only moves its timer's deadline; the heap changes only when the old deadline comes. So a thousand members
with a heartbeat every three seconds cost a thousand attribute writes, and no task of their own.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import math
from collections.abc import Callable

import trio

logger = logging.getLogger(__name__)


MOST_CANCELLED = 1000
"""Most cancelled timers in a heap whose other half is in use (Kafka: ``fetch.purgatory.purge.interval.requests``)."""


class Timer:
    """A deadline (in trio's clock) with its callback, created by `TimerQueue.schedule`."""

    __slots__ = ("_callback", "_queue", "deadline", "queued_deadline")

    def __init__(self, queue: TimerQueue, deadline: float, callback: Callable[[], None]) -> None:
        self._queue = queue
        self._callback: Callable[[], None] | None = callback
        self.deadline = deadline
        self.queued_deadline = deadline
        """The deadline of the valid heap entry; other entries of this timer are obsolete."""

    @property
    def is_pending(self) -> bool:
        """Whether the timer can still expire."""
        return self._callback is not None

    def cancel(self) -> None:
        """Cancel the timer. A second call, or one after its expiry, does nothing."""
        if self._callback is not None:
            self._callback = None
            self._queue.note_cancelled()

    def move(self, delay_ms: int) -> None:
        """Move the deadline to `delay_ms` from now, unless the timer was cancelled or has expired."""
        self.move_to(trio.current_time() + max(delay_ms, 0) / 1000)

    def move_to(self, deadline: float) -> None:
        """Move the deadline, in trio's clock, unless the timer was cancelled or has expired."""
        self.deadline = deadline
        if self.is_pending and deadline < self.queued_deadline:
            self._queue.push(self)

    def go_off(self) -> None:
        """Call the callback, once. An exception in it is logged and affects no other timer."""
        callback, self._callback = self._callback, None
        if callback is None:
            return
        try:
            callback()
        except Exception:
            logger.exception("a timer's callback failed")


class TimerQueue:
    """A queue that calls the callbacks of timers when they are due, in the order of their deadlines."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._tie_breaker = itertools.count()
        self._earlier_deadline = trio.Event()
        self._cancelled_count = 0
        """Cancelled timers in the heap, at least."""

    def schedule(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        """Call `callback` after `delay_ms`, at the next turn of the event loop if that is 0."""
        return self.schedule_at(trio.current_time() + max(delay_ms, 0) / 1000, callback)

    def schedule_at(self, deadline: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` at ``deadline``, in trio's clock."""
        timer = Timer(self, deadline, callback)
        self.push(timer)
        return timer

    async def run(self) -> None:
        """Call due timers until cancelled."""
        while True:
            self._fire_due()
            self._earlier_deadline = trio.Event()
            deadline = self._heap[0][0] if self._heap else math.inf
            with trio.move_on_at(deadline):
                await self._earlier_deadline.wait()

    def push(self, timer: Timer) -> None:
        """Queue a timer at its deadline (for `Timer.move`)."""
        timer.queued_deadline = timer.deadline
        is_first = not self._heap or timer.deadline < self._heap[0][0]
        heapq.heappush(self._heap, (timer.deadline, next(self._tie_breaker), timer))
        if is_first:
            self._earlier_deadline.set()

    def note_cancelled(self) -> None:
        """Count a cancelled timer; remove the cancelled ones once they are most of the heap.

        A client may cancel many timers of long delays, such as those of delayed fetches.
        """
        self._cancelled_count += 1
        if self._cancelled_count > MOST_CANCELLED and self._cancelled_count > len(self._heap) // 2:
            self._heap = [entry for entry in self._heap if entry[2].is_pending]
            heapq.heapify(self._heap)
            self._cancelled_count = 0

    def _fire_due(self) -> None:
        now = trio.current_time()
        while self._heap and self._heap[0][0] <= now:
            queued_deadline, _, timer = heapq.heappop(self._heap)
            if not timer.is_pending or queued_deadline != timer.queued_deadline:
                continue
            if timer.deadline > now:
                self.push(timer)
            else:
                timer.go_off()
        # A cancelled timer need not wake the task, which would then sleep until the next one's deadline.
        while self._heap and not self._heap[0][2].is_pending:
            heapq.heappop(self._heap)
