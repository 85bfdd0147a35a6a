"""All partition logs of a broker, in one or more log directories."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence

from .clock import Clock
from .log_config import LogConfig
from .partition_log import PartitionLog
from .paths import TopicPartition


class LogManager:
    """Finds, opens, creates and deletes partition logs, and keeps Kafka's checkpoint files.

    `open_all` finds logs that the metadata store may not know (adoption): see `partitions()` and `PartitionLog.topic_id`.
    """

    def __init__(
        self,
        log_dirs: Sequence[str],
        defaults: LogConfig,
        clock: Clock,
        *,
        node_id: int = 1,
        cluster_id: str | None = None,
    ) -> None:
        self.log_dirs = list(log_dirs)
        self.defaults = defaults
        self.clock = clock
        self.node_id = node_id
        self.cluster_id = cluster_id

    def open_all(self) -> None:
        """Lock the log directories, read meta.properties (`cluster_id` is set from it, or made) and open every log.

        Raises StorageUnavailable with a one-line reason if a directory cannot be used.
        """
        raise NotImplementedError

    def create(
        self, topic: str, partition: int, topic_id: uuid.UUID | None = None, config: LogConfig | None = None
    ) -> PartitionLog:
        """The partition's log, made in the log directory with the fewest partitions if there is none."""
        raise NotImplementedError

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        """The partition's log, if there is one."""
        raise NotImplementedError

    def delete(self, topic: str, partition: int) -> None:
        """Drop the partition's log; its directory is renamed to `*-delete` and removed after file.delete.delay.ms."""
        raise NotImplementedError

    def partitions(self) -> Iterator[TopicPartition]:
        """Every partition that has a log here."""
        raise NotImplementedError

    def run_maintenance(self, now_ms: int) -> None:
        """Retention, flushes that are due, checkpoints, delayed removals. Safe to call in a worker thread."""
        raise NotImplementedError

    def close(self) -> None:
        """Flush and close every log, write the checkpoints and the clean-shutdown marker, unlock."""
        raise NotImplementedError
