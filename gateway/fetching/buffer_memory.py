"""The memory for fetched batches that are to be converted (gregor.gateway.buffer.memory), for all clients together."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import trio

LEAST_BYTES = 32 * 1024
"""The least that a fetch gets; with less it waits."""
MOST_BYTES = 1024 * 1024
"""The most that one fetch gets."""
SHARE = 32
"""A fetch gets at most this share of the free memory, so that many slow clients leave some for others."""


class BufferMemory:
    """A bounded memory from which each fetch of an old client takes a part, in order of arrival."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.used_bytes = 0
        self._waiting: deque[tuple[int, trio.Event]] = deque()
        self._spare: dict[Hold, Callable[[], None]] = {}

    @property
    def waiting_count(self) -> int:
        """The number of fetches that wait for memory."""
        return len(self._waiting)

    async def take(self, wanted_bytes: int) -> Hold:
        """Wait until memory is free, and hold a part of it: at most ``wanted_bytes``, and less while little is free."""
        await self._wait_for(min(LEAST_BYTES, self.size_bytes))
        free_bytes = self.size_bytes - self.used_bytes
        granted = max(min(wanted_bytes, MOST_BYTES, free_bytes // SHARE), min(LEAST_BYTES, free_bytes))
        return self._held(granted)

    async def take_exactly(self, size_bytes: int) -> Hold:
        """Wait until as much memory is free, at most all of it, and hold it."""
        size_bytes = min(size_bytes, self.size_bytes)
        await self._wait_for(size_bytes)
        return self._held(size_bytes)

    def take_spare(self, wanted_bytes: int, drop: Callable[[], None]) -> Hold | None:
        """Hold memory for what need not be done yet, if half of all memory stays free; None if it would not.

        When others need the memory, ``drop`` is called and the hold is released; the oldest hold is the first.
        """
        free_bytes = self.size_bytes - self.used_bytes
        granted = min(wanted_bytes, MOST_BYTES, free_bytes // SHARE)
        if self._waiting or granted < LEAST_BYTES or free_bytes - granted < self.size_bytes // 2:
            return None
        hold = self._held(granted)
        self._spare[hold] = drop
        return hold

    def needed(self, hold: Hold) -> None:
        """Keep a hold of `take_spare` from being dropped, as it is in use from now on."""
        self._spare.pop(hold, None)

    async def _wait_for(self, size_bytes: int) -> None:
        while self._spare and self.size_bytes - self.used_bytes < size_bytes:
            hold, drop = next(iter(self._spare.items()))
            drop()
            hold.release()
        if not self._waiting and self.size_bytes - self.used_bytes >= size_bytes:
            return
        entry = (size_bytes, trio.Event())
        self._waiting.append(entry)
        try:
            await entry[1].wait()
        except trio.Cancelled:
            self._waiting.remove(entry)
            self._wake()
            raise
        # Nothing else is taken between the event and this task's turn: later fetches wait while any is queued.
        self._waiting.remove(entry)

    def _held(self, size_bytes: int) -> Hold:
        hold = Hold(self, size_bytes)
        self._wake()
        return hold

    def give_back(self, hold: Hold, size_bytes: int) -> None:
        """Free memory (for `Hold.release`)."""
        self._spare.pop(hold, None)
        self.used_bytes -= size_bytes
        self._wake()

    def _wake(self) -> None:
        if self._waiting and self.size_bytes - self.used_bytes >= self._waiting[0][0]:
            self._waiting[0][1].set()


class Hold:
    """A part of the buffer memory that one fetch holds until `release`."""

    __slots__ = ("_memory", "size_bytes")

    def __init__(self, memory: BufferMemory, size_bytes: int) -> None:
        self._memory = memory
        self.size_bytes = size_bytes
        memory.used_bytes += size_bytes

    def release(self) -> None:
        """Free the memory. A second call does nothing."""
        size_bytes, self.size_bytes = self.size_bytes, 0
        self._memory.give_back(self, size_bytes)
