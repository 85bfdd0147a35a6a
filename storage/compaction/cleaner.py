"""Which log is compacted next, and how far each one is clean (Kafka `LogCleanerManager`).

A log is due when the dirty part of what may be cleaned exceeds `min.cleanable.dirty.ratio`, or its oldest dirty record
is older than `max.compaction.lag.ms`. The dirtiest goes first. How far a log is clean survives in Kafka's
`cleaner-offset-checkpoint`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ...protocol.errors import BrokerError
from ..clock import Clock
from ..disk import paths
from ..disk.directory_health import SHORTAGES
from ..disk.files import Files
from ..disk.log_directory import LogDirectory
from ..disk.paths import TopicPartition
from ..log.log_config import LONG_MAX
from ..log.partition_log import PartitionLog
from ..log.segment import SegmentDamagedError
from . import compaction
from .compaction import NO_LIMITS, NO_STATS, Compaction, CompactionLimits, CompactionStats

logger = logging.getLogger(__name__)

RETRY_MS = 60_000
"""How long a compaction waits that there was no room for. Kafka tries again at the next start only."""
NEVER_MS = 2**63

COMPACTION_FAULTS = (OSError, BrokerError, SegmentDamagedError)


class CleaningNeed(NamedTuple):
    """How much a log wants to be compacted: the dirty share of what may be cleaned, and ms beyond the longest lag."""

    overdue_ms: int
    dirty_ratio: float
    is_due: bool


class Uncleanable(NamedTuple):
    """A log whose compaction has failed, and when it is tried again."""

    log: PartitionLog
    retry_at_ms: int


NO_NEED = CleaningNeed(0, 0.0, False)


@dataclass(slots=True)
class CleanerFacts:
    """What the last look and the last compaction have found, for metrics."""

    looked_at_ms: int
    max_dirty_ratio: float = 0.0
    max_delay_ms: int = 0
    last: CompactionStats = NO_STATS


class UncleanablePartitions(NamedTuple):
    """Partitions of one log directory that are not compacted any more, and their bytes."""

    partition_count: int
    size_bytes: int


class LogCleaner:
    """Picks logs and keeps the checkpoints; all in the thread that appends, but for `Compaction.run`.

    Use: `begin`, run what it gives in a worker thread, then `finish` it, or `fail` it if that raised.
    """

    def __init__(self, files: Files, clock: Clock, limits: CompactionLimits = NO_LIMITS) -> None:
        self._files = files
        self._clock = clock
        self.limits = limits
        """For compactions that begin from now on."""
        self.facts = CleanerFacts(looked_at_ms=clock.now_ms())
        self._clean_until: dict[TopicPartition, int] = {}
        self._homes: dict[TopicPartition, LogDirectory] = {}
        self._uncleanable: dict[TopicPartition, Uncleanable] = {}
        self._running: dict[Compaction, TopicPartition] = {}

    def add_directory(self, directory: LogDirectory) -> None:
        """Read what is known of a log directory's partitions."""
        for name, offset in directory.read_checkpoint(paths.CLEANER_CHECKPOINT).items():
            self._clean_until[name] = offset
            self._homes[name] = directory

    def forget(self, name: TopicPartition) -> None:
        """Stop the work on a partition that was deleted."""
        for running, busy_with in self._running.items():
            if busy_with == name:
                running.cancel()
        self._clean_until.pop(name, None)
        self._homes.pop(name, None)
        self._uncleanable.pop(name, None)

    def uncleanable(self, directory: LogDirectory) -> UncleanablePartitions:
        """Return the partitions of a log directory that are no longer compacted. Raises OSError."""
        logs = [known.log for name, known in self._uncleanable.items() if self._homes[name] is directory]
        return UncleanablePartitions(len(logs), sum(log.size_bytes for log in logs))

    def begin(self, logs: Iterable[tuple[TopicPartition, PartitionLog, LogDirectory]]) -> Compaction | None:
        """Return the compaction that is most needed now, if any is; a log that cannot be read is passed over.

        It is passed over until the next start, or for `RETRY_MS` if only room was lacking.
        """
        filthiest: tuple[CleaningNeed, TopicPartition, PartitionLog, LogDirectory] | None = None
        facts = self.facts
        facts.looked_at_ms, facts.max_dirty_ratio, facts.max_delay_ms = self._clock.now_ms(), 0.0, 0
        for name, log, directory in logs:
            if not log.config.is_compacted or name in self._running.values():
                continue
            if (given_up := self._uncleanable.get(name)) is not None:
                if given_up.retry_at_ms > facts.looked_at_ms:
                    continue
                del self._uncleanable[name]
            try:
                need = self._need_of(name, log)
            except COMPACTION_FAULTS as fault:
                self._homes[name] = directory
                self._give_up(name, log, fault)
                continue
            facts.max_dirty_ratio = max(facts.max_dirty_ratio, need.dirty_ratio)
            facts.max_delay_ms = max(facts.max_delay_ms, need.overdue_ms)
            if need.is_due and (filthiest is None or need > filthiest[0]):
                filthiest = need, name, log, directory
        if filthiest is None:
            return None
        _, name, log, directory = filthiest
        self._homes[name] = directory
        try:
            begun = compaction.plan(log, self._files, self._clock, self._first_dirty(name, log), self.limits)
        except COMPACTION_FAULTS as fault:
            self._give_up(name, log, fault)
            return None
        if begun is not None:
            self._running[begun] = name
        return begun

    def finish(self, done: Compaction) -> bool:
        """Commit a compaction that has run, and note how far its log is clean; False if it came too late."""
        name = self._running.pop(done)
        self.facts.last = done.stats
        try:
            if not done.commit():
                return False
            self._clean_until[name] = done.end_offset
            self._write_checkpoint(self._homes[name])
        except OSError as fault:
            if not done.is_half_done:
                self._discard(name, done)
            self._give_up(name, done.log, fault, may_retry=not done.is_half_done)
            return False
        logger.info(
            "%s is compacted up to offset %d: %d bytes read, %d written, %.1f s",
            name,
            done.end_offset,
            done.stats.read_bytes,
            done.stats.written_bytes,
            done.stats.elapsed_s,
        )
        return True

    def fail(self, failed: Compaction, fault: BaseException) -> None:
        """Take back what a compaction that could not be run has written, and leave its log alone, as in `begin`."""
        name = self._running.pop(failed)
        self._discard(name, failed)
        if not failed.is_cancelled:
            self._give_up(name, failed.log, fault)

    @staticmethod
    def _discard(name: TopicPartition, failed: Compaction) -> None:
        try:
            failed.discard()
        except OSError as fault:
            logger.warning("%s: %s", name, fault)

    def _give_up(
        self, name: TopicPartition, log: PartitionLog, fault: BaseException, *, may_retry: bool = True
    ) -> None:
        if may_retry and isinstance(fault, OSError) and fault.errno in SHORTAGES:
            logger.error("%s is not compacted for %d s: %s", name, RETRY_MS // 1000, fault)
            self._uncleanable[name] = Uncleanable(log, self._clock.now_ms() + RETRY_MS)
            return
        logger.error("%s is not compacted any more until the next start: %s", name, fault)
        self._uncleanable[name] = Uncleanable(log, NEVER_MS)

    def _first_dirty(self, name: TopicPartition, log: PartitionLog) -> int:
        """Return the first dirty offset: the log's start if the checkpoint does not fit (Kafka `cleanableOffsets`)."""
        known = self._clean_until.get(name, 0)
        first = log.segments[0].base_offset
        if known > log.log_end_offset:
            logger.warning("%s: the cleaner's checkpoint says %d, beyond the end: cleaning it all", name, known)
            return first
        return max(known, first)

    def _need_of(self, name: TopicPartition, log: PartitionLog) -> CleaningNeed:
        first_dirty = self._first_dirty(name, log)
        now_ms = self._clock.now_ms()
        cleanable = compaction.cleanable_segments(log, now_ms)
        dirty = [segment for segment in cleanable if segment.next_offset > first_dirty]
        dirty_bytes = sum(segment.size_bytes for segment in dirty)
        if not dirty_bytes:
            return NO_NEED
        config = log.config
        overdue_ms = 0
        if config.max_compaction_lag_ms < LONG_MAX:
            first_times = (segment.first_timestamp for segment in dirty if segment.first_timestamp >= 0)
            oldest_ms = min(first_times, default=now_ms)
            overdue_ms = max(now_ms - oldest_ms - config.max_compaction_lag_ms, 0)
        ratio = dirty_bytes / sum(segment.size_bytes for segment in cleanable)
        return CleaningNeed(overdue_ms, ratio, overdue_ms > 0 or ratio > config.min_cleanable_dirty_ratio)

    def _write_checkpoint(self, directory: LogDirectory) -> None:
        directory.write_checkpoint(
            paths.CLEANER_CHECKPOINT,
            {name: offset for name, offset in self._clean_until.items() if self._homes[name] is directory},
        )
