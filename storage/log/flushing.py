"""When a log's records are forced to the disk, and how far they are (`flush.messages`, `flush.ms`, recovery point)."""

from __future__ import annotations

from collections.abc import Callable

from ..clock import Clock
from .leader_epochs import LeaderEpochs
from .log_config import LogConfig
from .log_segments import LogSegments


class Flusher:
    """The flush state of one log."""

    __slots__ = ("_clock", "_epochs", "flushed_at_ms", "recovery_point", "unflushed_count")

    def __init__(self, clock: Clock, epochs: LeaderEpochs) -> None:
        self._clock = clock
        self._epochs = epochs
        self.recovery_point = 0
        """All records below it are known to be on the disk; what a crash leaves is checked from here on."""
        self.flushed_at_ms = clock.now_ms()
        self.unflushed_count = 0
        """Records appended since the last flush."""

    def start(self, segments: LogSegments, end_offset: int, *, with_active: bool = True) -> Callable[[], None]:
        """What a flush up to `end_offset` has to do, as a function for any thread.

        Without the active segment only those are flushed that were finished since the last time. Both raise OSError.
        """
        unflushed = segments.all[segments.number_at(self.recovery_point) :]
        if with_active:
            self.unflushed_count = 0
        else:
            unflushed = unflushed[:-1]
            end_offset = segments.active.base_offset
        # The epochs first: a record of an epoch that nobody has heard of would not be believed after a crash.
        held = [self._epochs.hold_for_sync(), *(segment.hold_for_sync() for segment in unflushed)]

        def finish() -> None:
            for sync in held:
                sync()
            self.recovery_point = max(self.recovery_point, end_offset)
            if with_active:
                self.flushed_at_ms = self._clock.now_ms()

        return finish

    def due(self, segments: LogSegments, end_offset: int, config: LogConfig, now_ms: int) -> Callable[[], None] | None:
        """The flush that `flush.ms` or a finished segment asks for now, as `start` gives it. Raises OSError."""
        if self.recovery_point < end_offset and now_ms - self.flushed_at_ms >= config.flush_ms:
            return self.start(segments, end_offset)
        if self.recovery_point < segments.active.base_offset:
            return self.start(segments, end_offset, with_active=False)
        return None
