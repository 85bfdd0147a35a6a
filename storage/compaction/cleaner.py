"""The choice of the next log to compact, and the offset up to which each log is clean (Kafka `LogCleanerManager`).

A log is due when the dirty share of its cleanable part exceeds `min.cleanable.dirty.ratio`, or its oldest dirty record
is older than `max.compaction.lag.ms`. The log with the largest share comes first. Kafka's `cleaner-offset-checkpoint`
has the first dirty offset of each log.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ...protocol.errors import BrokerError
from ...protocol.topic_partition import TopicPartition
from ..clock import Clock
from ..disk import paths
from ..disk.directory_health import SHORTAGES
from ..disk.files import Files
from ..disk.log_directory import LogDirectory
from ..log.log_config import LONG_MAX
from ..log.partition_log import PartitionLog
from ..log.segment import SegmentDamagedError
from . import compaction
from .compaction import NO_LIMITS, NO_STATS, Compaction, CompactionLimits, CompactionStats

logger = logging.getLogger(__name__)

RETRY_MS = 60_000
"""The delay before a compaction that failed for lack of space is tried again.

Kafka tries again only after a restart.
"""
NEVER_MS = 2**63

COMPACTION_FAULTS = (OSError, BrokerError, SegmentDamagedError)


class CleaningNeed(NamedTuple):
    """The urgency of a log's compaction: the dirty share of its cleanable part, and ms beyond the longest lag."""

    overdue_ms: int
    dirty_ratio: float
    is_due: bool


class Uncleanable(NamedTuple):
    """A log whose compaction has failed, with the time of the next attempt."""

    log: PartitionLog
    retry_at_ms: int


NO_NEED = CleaningNeed(0, 0.0, False)


@dataclass(slots=True)
class CleanerFacts:
    """The results of the last check and the last compaction, for metrics."""

    looked_at_ms: int
    max_dirty_ratio: float = 0.0
    max_delay_ms: int = 0
    last: CompactionStats = NO_STATS


class UncleanablePartitions(NamedTuple):
    """The number of partitions of one log directory that are no longer compacted, and their size in bytes."""

    partition_count: int
    size_bytes: int


class LogCleaner:
    """A cleaner that chooses logs and writes the checkpoints, in the thread that appends, except for `Compaction.run`.

    Use: call `begin`, run the returned compaction in a worker thread, then call `finish`, or `fail` if it raised.
    """

    def __init__(self, files: Files, clock: Clock, limits: CompactionLimits = NO_LIMITS) -> None:
        self._files = files
        self._clock = clock
        self.limits = limits
        """The limits of compactions that begin from now on."""
        self.facts = CleanerFacts(looked_at_ms=clock.now_ms())
        self._clean_until: dict[TopicPartition, int] = {}
        self._homes: dict[TopicPartition, LogDirectory] = {}
        self._uncleanable: dict[TopicPartition, Uncleanable] = {}
        self._running: dict[Compaction, TopicPartition] = {}

    def add_directory(self, directory: LogDirectory) -> None:
        """Read the cleaner's checkpoint of a log directory."""
        for name, offset in directory.read_checkpoint(paths.CLEANER_CHECKPOINT).items():
            self._clean_until[name] = offset
            self._homes[name] = directory

    def forget(self, name: TopicPartition) -> None:
        """Cancel the compaction of a deleted partition and remove its state."""
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
        """Return the most urgent compaction, if any; a log that cannot be read is skipped.

        Such a log is skipped until the next start, or for `RETRY_MS` if only space was lacking.
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
        """Commit a compaction that has run and set its log's first dirty offset.

        Return False if the log was deleted or changed.
        """
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
        """Remove the files of a failed compaction; skip its log afterwards, as in `begin`."""
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
        logger.error("%s is not compacted until the next start: %s", name, fault)
        self._uncleanable[name] = Uncleanable(log, NEVER_MS)

    def _first_dirty(self, name: TopicPartition, log: PartitionLog) -> int:
        """Return the first dirty offset, or the log's start if the checkpoint is invalid (Kafka `cleanableOffsets`)."""
        known = self._clean_until.get(name, 0)
        first = log.segments[0].base_offset
        if known > log.log_end_offset:
            logger.warning(
                "%s: the cleaner's checkpoint %d is beyond the log's end: compacting the whole log", name, known
            )
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
