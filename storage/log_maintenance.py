"""Maintenance of all logs of a broker: retention, flushes, checkpoints, removal of deleted logs.

The methods are called in the thread that appends. Those that find long work return it as functions, which are run in
order, one at a time, in a worker thread, and which log their errors.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from functools import partial

from ..protocol.errors import BrokerError
from .disk import paths
from .disk.log_directories import LogDirectories
from .disk.log_directory import LogDirectory
from .log.head_space import due_reclaiming
from .log.log_config import LONG_MAX
from .log.partition_log import PartitionLog
from .log.retention import apply_retention
from .log.segment import SegmentDamagedError
from .log_checkpoints import high_watermarks, write_recovery_points
from .open_logs import OpenLogs

logger = logging.getLogger(__name__)

Slow = Callable[[], None]
"""Work that waits for the disk."""


class LogMaintenance:
    """The periodic work on open logs and on the directories of deleted ones."""

    def __init__(self, logs: OpenLogs, directories: LogDirectories, producer_id_expiration_ms: int) -> None:
        self._logs = logs
        self._directories = directories
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self._deleted: list[tuple[int, str]] = []
        """The directories of deleted logs, each with the time in ms at which it is removed."""

    def run(self, now_ms: int) -> list[Slow]:
        """Do everything below that is due, apart from high watermarks."""
        self.expire_producers(now_ms)
        return [*self.apply_retention(now_ms), *self.due_flushes(now_ms), *self.due_checkpoints()]

    def apply_retention(self, now_ms: int) -> list[Slow]:
        """Delete expired records; return the functions that release space inside of files, which is slow."""

        def steps_of(log: PartitionLog) -> tuple[Slow | None]:
            apply_retention(log, now_ms)
            return (due_reclaiming(log, self._directories.files),)

        steps = self._steps_of_logs(steps_of)
        # The log start is written to the checkpoint first: a log must not begin in bytes that were released.
        return [*self.due_checkpoints(), *steps] if steps else []

    def due_flushes(self, now_ms: int) -> list[Slow]:
        """Return the flushes that `flush.ms` or a finished segment requires, and the removals of deleted files."""
        steps = self._steps_of_logs(lambda log: (log.due_flush(now_ms), log.due_removals(now_ms)))
        due = [path for due_ms, path in self._deleted if due_ms <= now_ms]
        self._deleted = [(due_ms, path) for due_ms, path in self._deleted if due_ms > now_ms]
        return [*steps, *(_logged(partial(self._directories.files.remove_tree, path)) for path in due)]

    def due_checkpoints(self) -> list[Slow]:
        """Return functions that write changed recovery points and log start offsets to the checkpoints."""
        return [
            _logged(partial(write_recovery_points, directory, self._logs.in_directory(directory)))
            for directory in self._directories
            if directory.health.failure is None
        ]

    def high_watermark_checkpoints(self) -> list[Slow]:
        """Return functions that write the high watermarks of replicated logs to the checkpoints."""
        return [
            _logged(partial(directory.write_checkpoint, paths.REPLICATION_CHECKPOINT, known))
            for directory in self._directories
            if directory.health.failure is None
            and (known := high_watermarks(directory, self._logs.in_directory(directory)))
        ]

    def expire_producers(self, now_ms: int) -> None:
        """Remove producers that have not written for `producer_id_expiration_ms`."""
        for log in self._logs:
            log.producers.expire(now_ms, self.producer_id_expiration_ms)

    @property
    def shortest_flush_ms(self) -> int:
        """Return the smallest `flush.ms` of all logs."""
        return min((log.config.flush_ms for log in self._logs), default=LONG_MAX)

    def remove_later(self, path: str, due_ms: int) -> None:
        """Have `due_flushes` remove the directory of a deleted log, at `due_ms` or later."""
        self._deleted.append((due_ms, path))

    def keep_deleted_in(self, directory: LogDirectory) -> None:
        """Remove no deleted logs from a failed log directory; the next start removes them."""
        self._deleted = [(due_ms, path) for due_ms, path in self._deleted if os.path.dirname(path) != directory.path]

    def _steps_of_logs(self, steps_of: Callable[[PartitionLog], Iterable[Slow | None]]) -> list[Slow]:
        steps: list[Slow] = []
        for log in self._logs:
            try:
                steps.extend(_logged(step) for step in steps_of(log) if step is not None)
            except (OSError, BrokerError, SegmentDamagedError) as fault:
                logger.error("maintenance of %s: %s", log.directory, fault)
        return steps


def _logged(step: Slow) -> Slow:
    def run() -> None:
        try:
            step()
        except (OSError, BrokerError) as fault:
            logger.error("maintenance: %s", fault)

    return run
