"""The receipt times of v0 messages, for readers of formats with timestamps.

v0 has no timestamps. With `message.timestamp.type=LogAppendTime`, readers of v1 and v2 get the receipt tag of the log's
index as timestamp; otherwise they get -1, as from Kafka.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from .record import NO_TIMESTAMP


class Receipts:
    """Ranges of bytes that were received together: the position of each, ascending, and its time in milliseconds."""

    __slots__ = ("_positions", "_times")

    def __init__(self, runs: Sequence[tuple[int, int]] = ()) -> None:
        self._positions = [position for position, _ in runs]
        self._times = [receipt_ms for _, receipt_ms in runs]

    def __bool__(self) -> bool:
        return bool(self._times)

    def at(self, position: int) -> int:
        """Return the receipt time of the v0 message at `position`; -1 if clients must not see that time."""
        run = bisect_right(self._positions, position)
        return self._times[run - 1] if run else NO_TIMESTAMP

    def end_after(self, position: int, end: int) -> int:
        """Return the end of the run that contains `position`, at most `end`."""
        run = bisect_right(self._positions, position)
        return min(end, self._positions[run]) if run < len(self._positions) else end


NO_RECEIPTS = Receipts()
