"""Which log is compacted next, and how far each one is clean (Kafka `LogCleanerManager`).

A log is due when the dirty part of what may be cleaned exceeds `min.cleanable.dirty.ratio`, or its oldest dirty record
is older than `max.compaction.lag.ms`. The dirtiest goes first. How far a log is clean survives in Kafka's
`cleaner-offset-checkpoint`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ..protocol.errors import BrokerError
from . import compaction, paths
from .clock import Clock
from .compaction import DEDUPE_BUFFER_BYTES, Compaction
from .files import Files
from .log_config import LONG_MAX
from .log_directory import LogDirectory
from .partition_log import PartitionLog
from .paths import TopicPartition
from .segment import SegmentDamagedError

logger = logging.getLogger(__name__)

COMPACTION_FAULTS = (OSError, BrokerError, SegmentDamagedError)


class LogCleaner:
    """Picks logs and keeps the checkpoints; all in the thread that appends, but for `Compaction.run`.

    Use: `begin`, run what it gives in a worker thread, then `finish` it, or `fail` it if that raised.
    """

    def __init__(self, files: Files, clock: Clock, *, buffer_bytes: int = DEDUPE_BUFFER_BYTES) -> None:
        self._files = files
        self._clock = clock
        self._buffer_bytes = buffer_bytes
        self._clean_until: dict[TopicPartition, int] = {}
        self._homes: dict[TopicPartition, LogDirectory] = {}
        self._uncleanable: set[TopicPartition] = set()
        self._running: dict[Compaction, TopicPartition] = {}

    def add_directory(self, directory: LogDirectory) -> None:
        """Read what is known of a log directory's partitions."""
        for name, offset in directory.read_checkpoint(paths.CLEANER_CHECKPOINT).items():
            self._clean_until[name] = offset
            self._homes[name] = directory

    def forget(self, name: TopicPartition) -> None:
        """A partition was deleted; stop working on it."""
        for running, busy_with in self._running.items():
            if busy_with == name:
                running.is_cancelled = True
        self._clean_until.pop(name, None)
        self._homes.pop(name, None)
        self._uncleanable.discard(name)

    def begin(self, logs: Iterable[tuple[TopicPartition, PartitionLog, LogDirectory]]) -> Compaction | None:
        """The compaction that is most needed now, if any is; a log that cannot be read is passed over from then on."""
        filthiest: tuple[float, TopicPartition, PartitionLog, LogDirectory] | None = None
        for name, log, directory in logs:
            if not log.config.is_compacted or name in self._uncleanable or name in self._running.values():
                continue
            try:
                need = self._need_of(name, log)
            except COMPACTION_FAULTS as fault:
                self._give_up(name, fault)
                continue
            if need > 0 and (filthiest is None or need > filthiest[0]):
                filthiest = need, name, log, directory
        if filthiest is None:
            return None
        _, name, log, directory = filthiest
        begun = compaction.plan(
            log, self._files, self._clock, self._first_dirty(name, log), buffer_bytes=self._buffer_bytes
        )
        if begun is not None:
            self._homes[name] = directory
            self._running[begun] = name
        return begun

    def finish(self, done: Compaction) -> bool:
        """Commit a compaction that has run, and note how far its log is clean; False if it came too late."""
        name = self._running.pop(done)
        try:
            if not done.commit():
                return False
            self._clean_until[name] = done.end_offset
            self._write_checkpoint(self._homes[name])
        except OSError as fault:
            self._give_up(name, fault)
            return False
        logger.info("%s is compacted up to offset %d", name, done.end_offset)
        return True

    def fail(self, failed: Compaction, fault: BaseException) -> None:
        """A compaction could not be run: take back what it wrote, and leave that log alone until the next start."""
        name = self._running.pop(failed)
        try:
            failed.discard()
        except OSError as second_fault:
            logger.warning("%s: %s", name, second_fault)
        if not failed.is_cancelled:
            self._give_up(name, fault)

    def _give_up(self, name: TopicPartition, fault: BaseException) -> None:
        logger.error("%s is not compacted any more until the next start: %s", name, fault)
        self._uncleanable.add(name)

    def _first_dirty(self, name: TopicPartition, log: PartitionLog) -> int:
        """Where cleaning begins; from the start if the checkpoint does not fit the log (Kafka `cleanableOffsets`)."""
        known = self._clean_until.get(name, 0)
        first = log.segments[0].base_offset
        if known > log.log_end_offset:
            logger.warning("%s: the cleaner's checkpoint says %d, beyond the end: cleaning it all", name, known)
            return first
        return max(known, first)

    def _need_of(self, name: TopicPartition, log: PartitionLog) -> float:
        """The dirty ratio if the log is due for cleaning, 2 if a record has waited too long, else 0."""
        first_dirty = self._first_dirty(name, log)
        now_ms = self._clock.now_ms()
        cleanable = compaction.cleanable_segments(log, now_ms)
        dirty = [segment for segment in cleanable if segment.next_offset > first_dirty]
        dirty_bytes = sum(segment.size_bytes for segment in dirty)
        if not dirty_bytes:
            return 0.0
        config = log.config
        if config.max_compaction_lag_ms < LONG_MAX:
            first_times = (segment.first_timestamp for segment in dirty if segment.first_timestamp >= 0)
            oldest_ms = min(first_times, default=now_ms)
            if now_ms - oldest_ms > config.max_compaction_lag_ms:
                return 2.0
        ratio = dirty_bytes / sum(segment.size_bytes for segment in cleanable)
        return ratio if ratio > config.min_cleanable_dirty_ratio else 0.0

    def _write_checkpoint(self, directory: LogDirectory) -> None:
        directory.write_checkpoint(
            paths.CLEANER_CHECKPOINT,
            {name: offset for name, offset in self._clean_until.items() if self._homes[name] is directory},
        )
