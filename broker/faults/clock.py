"""A clock that can be moved: a broker that takes a wrong time for the right one (`gregor.fault.clock.offset.ms`)."""

from __future__ import annotations

from ...storage.clock import Clock


class MovableClock:
    """Another clock's time, so many milliseconds off.

    It is the time of records, retention and expiry. Waits and deadlines (sessions, purgatory) count time that passes,
    which no clock on a wall can change.
    """

    __slots__ = ("_clock", "offset_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.offset_ms = 0

    def now_ms(self) -> int:
        """Milliseconds since the epoch, as far as this broker knows; never before it."""
        return max(self._clock.now_ms() + self.offset_ms, 0)
