"""The bounded memory of a producer (`buffer.memory`): callers that need more than the free bytes wait in a queue."""

from __future__ import annotations

import trio

from ..errors import ClosedError, RecordTooLargeError
from ..metrics import Metrics
from .appending_cy import ReservedBytes


class BufferMemory(ReservedBytes):
    """A counter of the bytes of records from `send` until delivery or failure; it does not hold the bytes themselves.

    Invariant: 0 <= used_bytes, and used_bytes <= capacity_bytes after every reservation.
    """

    def measure(self, metrics: Metrics) -> None:
        """Register the metrics of Kafka's BufferPool; the waiting callers are tasks here and threads in Kafka."""
        metrics.measure("buffer-total-bytes", lambda: self.capacity_bytes)
        metrics.measure("buffer-available-bytes", lambda: self.capacity_bytes - self.used_bytes)
        metrics.measure("waiting-threads", lambda: len(self.waiting))

    @property
    def is_exhausted(self) -> bool:
        """Whether a caller waits for memory: then batches are sent before they are full, to free memory."""
        return bool(self.waiting)

    async def reserve(self, size_bytes: int) -> None:
        """Wait until the bytes are free and reserve them. A cancelled call has reserved nothing.

        Raises RecordTooLargeError if `size_bytes` exceeds the capacity, ClosedError if `close` is called meanwhile.
        """
        if size_bytes > self.capacity_bytes:
            raise RecordTooLargeError(f"a record of {size_bytes} bytes exceeds buffer.memory ({self.capacity_bytes})")
        await trio.lowlevel.checkpoint_if_cancelled()
        if self.try_reserve(size_bytes):
            await trio.lowlevel.cancel_shielded_checkpoint()
            return
        place = _Place(size_bytes)
        self.waiting.append(place)
        try:
            await place.woken.wait()
        except BaseException:
            if place.is_granted:
                self.release(size_bytes)
            elif place in self.waiting:
                self.waiting.remove(place)
                self._grant()
            raise
        if not place.is_granted:
            raise ClosedError("the producer was closed while a record waited for memory")

    def close(self) -> None:
        """Make all waiting callers raise ClosedError."""
        while self.waiting:
            self.waiting.popleft().woken.set()

    def _grant(self) -> None:
        while self.waiting and self.used_bytes + self.waiting[0].size_bytes <= self.capacity_bytes:
            place = self.waiting.popleft()
            self.used_bytes += place.size_bytes
            place.is_granted = True
            place.woken.set()


class _Place:
    """The position of one caller in the queue for memory."""

    __slots__ = ("is_granted", "size_bytes", "woken")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.is_granted = False
        self.woken = trio.Event()
