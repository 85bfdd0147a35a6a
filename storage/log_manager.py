"""All partition logs of a broker, in one or more log directories (Kafka `LogManager`)."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from ..protocol.errors import BrokerError
from ..protocol.topic_partition import TopicPartition
from .clock import Clock
from .compaction.cleaner import LogCleaner
from .compaction.compaction import Compaction
from .disk import paths
from .disk.checkpoints import encode_uuid
from .disk.directory_health import SHORTAGES
from .disk.files import Files, OsFiles
from .disk.log_directories import LogDirectories, unusable
from .disk.log_directory import LogDirectory, StorageUnavailableError, UnopenedLog
from .disk.open_files import OpenFiles
from .log.log_config import LogConfig
from .log.partition_log import PartitionLog
from .log_checkpoints import high_watermarks, write_recovery_points
from .log_maintenance import LogMaintenance
from .log_move import LogMove
from .many_logs import for_many
from .open_logs import OpenLogs
from .producers.producer_state import PRODUCER_ID_EXPIRATION_MS

__all__ = ["LogManager", "StorageUnavailableError"]

logger = logging.getLogger(__name__)

MOVE_FLUSH_MS = 1000
"""The interval between flushes of a log that is copied to another directory, so that the last flush is short."""

ConfigOf = Callable[[str], LogConfig]


class LogManager:
    """A registry that finds, opens, creates, moves and deletes partition logs, and writes Kafka's checkpoint files.

    Logs that are not in the metadata (a directory copied from a Kafka broker) are opened like all others: see
    `partitions`, and `PartitionLog.topic_id` for their topic ids.
    """

    def __init__(
        self,
        log_dirs: Sequence[str],
        defaults: LogConfig,
        clock: Clock,
        *,
        node_id: int = 1,
        cluster_id: str | None = None,
        first_cluster_id: str | None = None,
        producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
        files: Files | None = None,
        max_open_files: int | None = None,
    ) -> None:
        self.defaults = defaults
        self.node_id = node_id
        self.cluster_id = cluster_id
        """Set by `open_all`: the cluster id of the directories, or a new one."""
        self.first_cluster_id = first_cluster_id
        """The cluster id for directories that belong to no cluster yet; None generates one."""
        self._clock = clock
        self._directories = LogDirectories(OsFiles() if files is None else files, log_dirs)
        self._files = self._directories.files
        self._pool = OpenFiles(self._files, max_open_files)
        self._cleaner = LogCleaner(self._files, clock)
        self._logs = OpenLogs()
        self.maintenance = LogMaintenance(self._logs, self._directories, producer_id_expiration_ms)
        """The periodic work on the logs, apart from compaction."""
        self._moves: dict[TopicPartition, LogMove] = {}
        self._recovery_points: dict[TopicPartition, int] = {}
        """The values of the checkpoints when the directories were opened."""
        self._high_watermarks: dict[TopicPartition, int] = {}
        """The high watermarks of the last checkpoint, for logs that have other replicas."""

    @property
    def directories(self) -> tuple[LogDirectory, ...]:
        """Return the log directories, in the order of `log.dirs`."""
        return self._directories.all

    @property
    def health(self) -> LogDirectories:
        """Return the log directories with their health."""
        return self._directories

    # --- start and stop ---

    def open_all(self, config_of: ConfigOf | None = None) -> None:
        """Lock the log directories and open every log in them, with `config_of(topic)` or the defaults.

        A log that cannot be opened is skipped, with one log line. Raises StorageUnavailableError if a directory cannot
        be used; its text is one line for the user.
        """
        self.cluster_id = self._directories.open(self.node_id, self.cluster_id, self.first_cluster_id)
        for directory in self._directories:
            try:
                self._open_directory(directory, config_of)
            except OSError as fault:
                self._directories.unlock()
                raise StorageUnavailableError(unusable(directory.path, fault)) from fault

    def _open_directory(self, directory: LogDirectory, config_of: ConfigOf | None) -> None:
        recovery_points = directory.read_checkpoint(paths.RECOVERY_POINT_CHECKPOINT)
        self._recovery_points.update(recovery_points)
        log_starts = directory.read_checkpoint(paths.LOG_START_CHECKPOINT)
        self._high_watermarks.update(directory.read_checkpoint(paths.REPLICATION_CHECKPOINT))
        self._cleaner.add_directory(directory)
        for name in sorted(directory.partitions()):
            if (home := self._logs.directory_of(name)) is not None:
                logger.error("%s is also in %s: ignored", directory.partition_path(name), home.path)
                continue
            directory.unopened[name] = UnopenedLog(
                max(recovery_points.get(name, 0), 0),
                max(log_starts.get(name, 0), 0),
                self._high_watermarks.get(name, 0),
            )
            try:
                self._open_log(directory, name, config_of(name.topic) if config_of else self.defaults)
            except (OSError, BrokerError) as fault:
                logger.error("%s cannot be opened: %s", directory.partition_path(name), fault)
        for path in directory.removable():
            self.maintenance.remove_later(path, 0)

    def _open_log(
        self, directory: LogDirectory, name: TopicPartition, config: LogConfig, topic_id: uuid.UUID | None = None
    ) -> PartitionLog:
        """Open the log in `directory`, or create it there. Raises OSError, BrokerError."""
        known = directory.unopened.get(name)
        log = PartitionLog.open(
            directory.partition_path(name),
            config,
            self._clock,
            pool=self._pool,
            topic_id=topic_id,
            log_start_offset=known.log_start_offset if known else 0,
            recovery_point=known.recovery_point if known else 0,
            is_clean=known is not None and directory.was_closed_cleanly,
            health=directory.health,
        )
        directory.unopened.pop(name, None)
        self._logs.add(name, log, directory)
        return log

    def close(self) -> None:
        """Cancel moves, flush and close every log, write checkpoints and clean-shutdown markers, unlock directories.

        A directory in which a log could not be opened or closed gets no marker; to a failed directory nothing is
        written.
        """
        for name in list(self._moves):
            try:
                self.give_up_move(*name)
            except OSError as fault:
                logger.error("%s: files of its cancelled move remain: %s", name, fault)
        for directory in self._directories:
            self._close_directory(directory)
        self._directories.unlock()
        self._logs.clear()

    def _close_directory(self, directory: LogDirectory) -> None:
        is_clean = all(list(for_many(_close, self._logs.in_directory(directory)))) and not directory.unopened
        if directory.health.failure is not None:
            return
        try:
            write_recovery_points(directory, self._logs.in_directory(directory))
            if known := high_watermarks(directory, self._logs.in_directory(directory)):
                directory.write_checkpoint(paths.REPLICATION_CHECKPOINT, known)
            if is_clean:
                directory.mark_closed()
        except (OSError, BrokerError) as fault:
            logger.error("%s: the checkpoints were not written: %s", directory.path, fault)

    # --- logs ---

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        """Return the partition's log, None if there is none."""
        return self._logs.find(TopicPartition(topic, partition))

    def partitions(self) -> Iterator[TopicPartition]:
        """Iterate over the partitions that have a log."""
        return self._logs.names()

    def logs(self) -> Iterator[PartitionLog]:
        """Iterate over the logs."""
        return iter(self._logs)

    @property
    def missing_directory_ids(self) -> list[str]:
        """The ids (`directory.id`) of directories that had logs of this broker and are no longer in `log.dirs`."""
        return sorted(map(encode_uuid, self._directories.missing_ids))

    def forget_missing_directories(self) -> None:
        """Stop expecting the directories of `missing_directory_ids`."""
        self._directories.forget_missing()

    def has_files_of(self, topic: str, partition: int) -> bool:
        """Return whether a log directory has the partition, although its log may not have been opened."""
        name = TopicPartition(topic, partition)
        return name in self._logs or any(name in directory.unopened for directory in self._directories)

    def directory_of(self, topic: str, partition: int) -> LogDirectory | None:
        """Return the log directory of the partition."""
        return self._logs.directory_of(TopicPartition(topic, partition))

    def create(
        self, topic: str, partition: int, topic_id: uuid.UUID | None = None, config: LogConfig | None = None
    ) -> PartitionLog:
        """Return the partition's log; create a missing one in the log directory with the fewest partitions.

        A log that could not be opened before is opened again in its directory. The files of a failed creation are
        removed. Raises OSError, BrokerError.
        """
        name = TopicPartition(topic, partition)
        log = self._logs.find(name)
        if log is not None:
            return log
        directory = self._directories.for_new_log(name)
        is_new = name not in directory.unopened and not self._files.exists(directory.partition_path(name))
        try:
            return self._open_log(directory, name, config or self.defaults, topic_id)
        except OSError as fault:
            if fault.errno in SHORTAGES:
                directory.health.write_refused(fault)
            if is_new:
                self._remove_half_made(directory, name)
            raise

    def _remove_half_made(self, directory: LogDirectory, name: TopicPartition) -> None:
        try:
            self._files.remove_tree(directory.partition_path(name))
        except OSError:
            # While this directory has a part of the log, no other may get the log: the next start would find two logs.
            directory.unopened[name] = UnopenedLog(0, 0, 0)

    def checkpointed_recovery_point(self, topic: str, partition: int) -> int | None:
        """Return the recovery point of the last checkpoint before `open_all`; None if unknown."""
        return self._recovery_points.get(TopicPartition(topic, partition))

    def keep_recovery_point(self, topic: str, partition: int) -> None:
        """Keep the checkpoint's entry of a log that is lost or too short, so that the next start detects this too."""
        name = TopicPartition(topic, partition)
        for directory in self._directories:
            known = directory.read_checkpoint(paths.RECOVERY_POINT_CHECKPOINT).get(name)
            if known is not None:
                directory.kept_recovery_points[name] = known

    def restore_high_watermark(self, log: PartitionLog) -> None:
        """Set the high watermark of a log that has other replicas to the value of the last checkpoint."""
        known = self._high_watermarks.pop(TopicPartition(log.topic, log.partition), 0)
        log.sole_replica = False
        log.high_watermark = max(log.log_start_offset, min(known, log.log_end_offset))

    def delete(self, topic: str, partition: int) -> None:
        """Delete the partition's log: rename its directory to `*-delete`; it is removed after file.delete.delay.ms.

        Raises OSError.
        """
        self.give_up_move(topic, partition)
        name = TopicPartition(topic, partition)
        if name in self._logs:
            self._retire(topic, partition)
        for directory in self._directories:
            if directory.unopened.pop(name, None) is not None and directory.health.failure is None:
                self._doom(directory, name, self.defaults)

    def set_aside(self, topic: str, partition: int) -> str:
        """Remove the partition's log from the registry, keep its files in a directory `*-stray`, and return the path.

        Raises OSError, BrokerError. Source: Kafka `LogManager.addStrayLog`, `LocalLog.logStrayDirName`.
        """
        self.give_up_move(topic, partition)
        name = TopicPartition(topic, partition)
        self._logs[name].close()
        log, directory = self._forget(name)
        stray = f"{directory.path}/{paths.stray_directory(topic, partition, uuid.uuid4().hex)}"
        self._files.rename(log.directory, stray)
        return stray

    def _retire(self, topic: str, partition: int) -> None:
        name = TopicPartition(topic, partition)
        log, directory = self._forget(name)
        log.abandon()
        self._doom(directory, name, log.config)

    def _doom(self, directory: LogDirectory, name: TopicPartition, config: LogConfig) -> None:
        """Rename a partition's directory to a name that marks it for removal."""
        doomed = f"{directory.path}/{paths.deleted_directory(*name, uuid.uuid4().hex)}"
        self._files.rename(directory.partition_path(name), doomed)
        self.maintenance.remove_later(doomed, self._clock.now_ms() + config.file_delete_delay_ms)

    def drop_failed(self, directory: LogDirectory) -> list[TopicPartition]:
        """Remove a failed directory without writing to it; return the partitions of its logs.

        Source: Kafka `LogManager.handleLogDirFailure`.
        """
        for name, move in list(self._moves.items()):
            if move.target is directory or self._logs.directory_of(name) is directory:
                with suppress(OSError):
                    self.give_up_move(*name)
        lost = self._logs.in_directory(directory)
        for name, log in lost:
            self._forget(name)
            with suppress(OSError):
                log.abandon()
        self.maintenance.keep_deleted_in(directory)
        return [*(name for name, _ in lost), *directory.unopened]

    def _forget(self, name: TopicPartition) -> tuple[PartitionLog, LogDirectory]:
        log, directory = self._logs.remove(name)
        self._cleaner.forget(name)
        return log, directory

    # --- moves between log directories ---

    def move_of(self, topic: str, partition: int) -> LogMove | None:
        """Return the move of the partition's log to another directory, None without a move."""
        return self._moves.get(TopicPartition(topic, partition))

    def begin_move(self, log: PartitionLog, target: LogDirectory) -> LogMove:
        """Begin a move of a log to another log directory; cancel a move to a third one. Raises OSError, BrokerError."""
        name = TopicPartition(log.topic, log.partition)
        self.give_up_move(*name)
        folder = target.future_path(name)
        copy = PartitionLog.open(
            f"{folder}/{paths.partition_directory(*name)}",
            replace(log.config, flush_ms=MOVE_FLUSH_MS),
            self._clock,
            pool=self._pool,
            topic_id=log.topic_id,
            health=target.health,
        )
        move = self._moves[name] = LogMove(log, copy, target, folder, self._files)
        return move

    def finish_move(self, move: LogMove) -> PartitionLog:
        """Replace the log by its copy; if that fails, the log stays as it was.

        Raises OSError, BrokerError.
        """
        source = move.source
        name = TopicPartition(source.topic, source.partition)
        move.settle()
        path = move.target.partition_path(name)
        self._files.rename(move.copy.directory, path)
        move.target.sync_names()
        moved = PartitionLog.open(
            path,
            source.config,
            self._clock,
            pool=self._pool,
            log_start_offset=source.log_start_offset,
            recovery_point=source.log_end_offset,
            is_clean=True,
            health=move.target.health,
        )
        moved.producers = source.producers
        self.give_up_move(*name)
        self._retire(*name)
        self._logs.add(name, moved, move.target)
        return moved

    def give_up_move(self, topic: str, partition: int) -> None:
        """Cancel the partition's move, if there is one; the log stays in its directory. Raises OSError."""
        move = self._moves.pop(TopicPartition(topic, partition), None)
        if move is not None:
            move.discard()

    # --- compaction ---

    @property
    def cleaner(self) -> LogCleaner:
        """Return the cleaner that compacts logs; see `begin_compaction`."""
        return self._cleaner

    def begin_compaction(self) -> Compaction | None:
        """Return the most urgent compaction, if any: run it in a worker thread, then pass it to the `cleaner`."""
        return self._cleaner.begin(self._logs.with_directories())


def _close(named: tuple[TopicPartition, PartitionLog]) -> bool:
    """Close a log, in any thread; return whether that succeeded."""
    name, log = named
    try:
        log.close()
    except (OSError, BrokerError) as fault:
        logger.error("%s was not closed: %s", name, fault)
        return False
    return True
