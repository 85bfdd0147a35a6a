"""A clock with an adjustable offset, for a broker with a wrong time (`gregor.fault.clock.offset.ms`)."""

from __future__ import annotations

from ...storage.clock import Clock


class MovableClock:
    """A clock that is a fixed offset away from another clock.

    Its time is used for records, retention and expiry. Waits and deadlines (sessions, purgatory) use monotonic time,
    which no wall clock changes.
    """

    __slots__ = ("_clock", "offset_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.offset_ms = 0

    def now_ms(self) -> int:
        """Return milliseconds since the epoch with the offset; never negative."""
        return max(self._clock.now_ms() + self.offset_ms, 0)
