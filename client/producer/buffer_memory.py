"""The bounded memory of a producer (`buffer.memory`): who asks for more than is free waits his turn."""

from collections import deque

import trio

from ..errors import RecordTooLargeError


class BufferMemory:
    """Counts the bytes of records from `send` to their end; it holds none itself.

    Invariant: 0 <= used_bytes, and used_bytes <= capacity_bytes after every reservation.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        self._waiting: deque[tuple[int, trio.Event]] = deque()

    @property
    def is_exhausted(self) -> bool:
        """Whether someone is waiting: then batches are sent before they are full, to make room."""
        return bool(self._waiting)

    def try_reserve(self, size_bytes: int) -> bool:
        """Take the bytes if they are free and nobody waits for them already."""
        if self._waiting or self.used_bytes + size_bytes > self.capacity_bytes:
            return False
        self.used_bytes += size_bytes
        return True

    async def reserve(self, size_bytes: int) -> None:
        """Wait for the bytes and take them. Raises RecordTooLargeError if there will never be so many."""
        if size_bytes > self.capacity_bytes:
            raise RecordTooLargeError(f"a record of {size_bytes} bytes exceeds buffer.memory ({self.capacity_bytes})")
        if self.try_reserve(size_bytes):
            await trio.lowlevel.checkpoint()
            return
        granted = trio.Event()
        place = (size_bytes, granted)
        self._waiting.append(place)
        try:
            await granted.wait()
        except BaseException:
            if granted.is_set():
                self.release(size_bytes)
            else:
                self._waiting.remove(place)
                self._grant()
            raise

    def release(self, size_bytes: int) -> None:
        """Give bytes back, and let those who wait have them in turn."""
        self.used_bytes -= size_bytes
        if self._waiting:
            self._grant()

    def _grant(self) -> None:
        while self._waiting and self.used_bytes + self._waiting[0][0] <= self.capacity_bytes:
            size_bytes, granted = self._waiting.popleft()
            self.used_bytes += size_bytes
            granted.set()
