"""Flushes of one log (`flush.messages`, `flush.ms`) and its recovery point."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from ..clock import Clock
from ..disk.directory_health import DirectoryHealth
from .leader_epochs import LeaderEpochs
from .log_config import LogConfig
from .log_segments import LogSegments
from .segment import Segment
from .topic_id_file import TopicIdFile


class PendingFlush:
    """A flush that has begun, with the end offset of the log at that time."""

    __slots__ = ("end_offset",)

    def __init__(self, end_offset: int) -> None:
        self.end_offset = end_offset


class Flusher:
    """The flush state of one log."""

    __slots__ = (
        "_clock",
        "_epochs",
        "_health",
        "_identity",
        "_lock",
        "_pending",
        "flushed_at_ms",
        "recovery_point",
        "unflushed_count",
    )

    def __init__(self, clock: Clock, epochs: LeaderEpochs, identity: TopicIdFile, health: DirectoryHealth) -> None:
        self._clock = clock
        self._epochs = epochs
        self._identity = identity
        self._health = health
        self._lock = threading.Lock()
        """Held while the recovery point moves, which happens in worker threads and in the thread that appends."""
        self._pending: list[PendingFlush] = []
        self.recovery_point = 0
        """All records below this offset are on the disk; recovery after a crash checks the log from this offset on."""
        self.flushed_at_ms = clock.now_ms()
        self.unflushed_count = 0
        """Records appended since the last flush."""

    def start(self, segments: LogSegments, end_offset: int, *, with_active: bool = True) -> Callable[[], None]:
        """Return a function for any thread that flushes the log up to `end_offset`.

        Without the active segment the flush covers the segments that were finished since the last flush. This method
        and the function raise OSError. The recovery point does not advance if an fsync fails, and never again in a log
        directory in which an fsync has failed.
        """
        unflushed = segments.all[segments.number_at(self.recovery_point) :]
        if not with_active:
            unflushed = unflushed[:-1]
            end_offset = segments.active.base_offset
        held = self._hold(segments, unflushed)
        if with_active:
            self.unflushed_count = 0
        pending = PendingFlush(end_offset)
        with self._lock:
            self._pending.append(pending)

        def finish() -> None:
            try:
                _run_all(held)
            except OSError:
                with self._lock:
                    self._pending.remove(pending)
                raise
            self._settle(pending)
            if with_active:
                self.flushed_at_ms = self._clock.now_ms()

        return finish

    def _hold(self, segments: LogSegments, unflushed: list[Segment]) -> list[Callable[[], None]]:
        """Return functions that force files to the disk, in order, and release each file. Raises OSError."""
        # The topic's id and the epochs come first: after a crash, records of an unknown topic or epoch are not valid.
        held = [self._identity.hold_for_sync(), self._epochs.hold_for_sync()]
        try:
            held.extend(segment.hold_for_sync() for segment in unflushed)
        except OSError:
            with suppress(OSError):
                _run_all(held)
            raise
        if any(segment.base_offset >= self.recovery_point for segment in unflushed):
            # A new segment's name is in the directory, not in the file (Kafka `LocalLog.flush`).
            held.append(segments.sync_names)
        return held

    def _settle(self, pending: PendingFlush) -> None:
        with self._lock:
            self._pending.remove(pending)
            if self._health.failure is None:
                self.recovery_point = max(self.recovery_point, pending.end_offset)

    def truncated_to(self, end_offset: int) -> None:
        """Lower the recovery point to `end_offset` after a truncation, also for flushes that have begun before."""
        with self._lock:
            self.recovery_point = min(self.recovery_point, end_offset)
            for pending in self._pending:
                pending.end_offset = min(pending.end_offset, end_offset)

    def due(self, segments: LogSegments, end_offset: int, config: LogConfig, now_ms: int) -> Callable[[], None] | None:
        """Return the flush that `flush.ms` or a finished segment requires now, as from `start`. Raises OSError."""
        if self._health.failure is not None:
            return None
        if self.recovery_point < end_offset and now_ms - self.flushed_at_ms >= config.flush_ms:
            return self.start(segments, end_offset)
        if self.recovery_point < segments.active.base_offset:
            return self.start(segments, end_offset, with_active=False)
        return None


def _run_all(held: list[Callable[[], None]]) -> None:
    """Run every function, since each releases a file; then raise the OSError of the first that failed."""
    faults: list[OSError] = []
    for sync in held:
        try:
            sync()
        except OSError as fault:
            faults.append(fault)
    if faults:
        raise faults[0]
