"""The open partition logs of a broker, each with the log directory that has it."""

from __future__ import annotations

from collections.abc import Iterator

from ..protocol.topic_partition import TopicPartition
from .disk.log_directory import LogDirectory
from .log.partition_log import PartitionLog


class OpenLogs:
    """A table of open logs; iterating over it gives the logs, and it may change meanwhile."""

    def __init__(self) -> None:
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._homes: dict[TopicPartition, LogDirectory] = {}

    def __contains__(self, name: TopicPartition) -> bool:
        return name in self._logs

    def __getitem__(self, name: TopicPartition) -> PartitionLog:
        return self._logs[name]

    def __iter__(self) -> Iterator[PartitionLog]:
        return iter(list(self._logs.values()))

    def names(self) -> Iterator[TopicPartition]:
        """Iterate over the partitions whose logs are open; the table may change meanwhile."""
        return iter(list(self._logs))

    def find(self, name: TopicPartition) -> PartitionLog | None:
        """Return the log of a partition, None if no log of it is open."""
        return self._logs.get(name)

    def directory_of(self, name: TopicPartition) -> LogDirectory | None:
        """Return the log directory of a partition whose log is open, None if no log of it is open."""
        return self._homes.get(name)

    def with_directories(self) -> Iterator[tuple[TopicPartition, PartitionLog, LogDirectory]]:
        """Iterate over the partitions with their logs and log directories; the table must not change meanwhile."""
        return ((name, log, self._homes[name]) for name, log in self._logs.items())

    def in_directory(self, directory: LogDirectory) -> list[tuple[TopicPartition, PartitionLog]]:
        """Return the partitions of one log directory with their logs."""
        return [(name, log) for name, log in self._logs.items() if self._homes[name] is directory]

    def add(self, name: TopicPartition, log: PartitionLog, directory: LogDirectory) -> None:
        """Add the log of a partition, and count it in its directory."""
        self._logs[name] = log
        self._homes[name] = directory
        directory.partition_count += 1

    def remove(self, name: TopicPartition) -> tuple[PartitionLog, LogDirectory]:
        """Remove the log of a partition from the table; return it with its directory. Raises KeyError."""
        log, directory = self._logs.pop(name), self._homes.pop(name)
        directory.partition_count -= 1
        return log, directory

    def clear(self) -> None:
        """Remove all logs; their directories keep their counts."""
        self._logs.clear()
        self._homes.clear()
