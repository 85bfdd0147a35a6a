"""All directories of `log.dirs`: opening them, their health, and the choice of a directory for a new log."""

from __future__ import annotations

import errno
import logging
import os
import uuid
from collections.abc import Callable, Iterator, Sequence

from ...protocol.topic_partition import TopicPartition
from .checkpoints import encode_uuid
from .directory_health import DirectoryHealth, WatchedFiles
from .files import Files
from .log_directory import LogDirectory, StorageUnavailableError

logger = logging.getLogger(__name__)


class LogDirectories:
    """The log directories of one broker, in the order of `log.dirs`."""

    def __init__(self, files: Files, log_dirs: Sequence[str]) -> None:
        self.files = WatchedFiles(files, self._health_of)
        """`files` that report a failed fsync to the health of the directory."""
        self.on_health_change: Callable[[], None] | None = None
        """Called after each change of a directory's health, in any thread."""
        paths = [path.rstrip("/") or "/" for path in log_dirs]
        self.missing_ids: frozenset[uuid.UUID] = frozenset()
        """The ids of directories that had logs of the broker and are no longer in `log.dirs`."""
        self.all = tuple(LogDirectory(self.files, path, DirectoryHealth(path, self._health_changed)) for path in paths)

    def __iter__(self) -> Iterator[LogDirectory]:
        return iter(self.all)

    def open(self, node_id: int, cluster_id: str | None, first_cluster_id: str | None = None) -> str:
        """Lock and identify all directories; return their cluster id.

        Directories that belong to no cluster yet get `first_cluster_id`, or a new one.

        Raises StorageUnavailableError, with no directory locked.
        """
        try:
            for directory in self.all:
                cluster_id = directory.open(node_id=node_id, cluster_id=cluster_id)
            cluster_id = cluster_id or first_cluster_id or encode_uuid(uuid.uuid4())
            for directory in self.all:
                try:
                    directory.identify(node_id, cluster_id)
                except OSError as fault:
                    raise StorageUnavailableError(unusable(directory.path, fault)) from fault
            self._note_ids(set().union(*(directory.noted_ids() for directory in self.all)))
        except OSError as fault:
            self.unlock()
            raise StorageUnavailableError(unusable(self.all[0].path, fault)) from fault
        except StorageUnavailableError:
            self.unlock()
            raise
        return cluster_id

    def forget_missing(self) -> None:
        """Stop expecting the directories of `missing_ids`: their logs are not needed."""
        if self.missing_ids:
            self._note_ids(set())

    def _note_ids(self, known: set[uuid.UUID]) -> None:
        present = {directory.directory_id for directory in self.all if directory.directory_id is not None}
        self.missing_ids = frozenset(known - present)
        if len(present) == 1 and not known:
            return
        for directory in self.all:
            try:
                directory.note_ids(present | known)
            except OSError as fault:
                # A full disk must not keep the broker from starting; the next start tries again.
                logger.warning("%s: the ids of log.dirs were not written: %s", directory.path, fault)

    def unlock(self) -> None:
        """Release the locks of the directories."""
        for directory in self.all:
            directory.unlock()

    def for_new_log(self, name: TopicPartition) -> LogDirectory:
        """Return the directory for a log: the one with its unopened files, or else the one with the fewest logs.

        Directories that refuse writes come last, failed ones are excluded. Raises OSError if there is none.
        """
        usable = [directory for directory in self.all if directory.health.failure is None]
        if not usable:
            raise OSError(errno.EIO, "No log directories available")
        for directory in usable:
            if name in directory.unopened:
                return directory
        return min(usable, key=lambda directory: (directory.health.refusal is not None, directory.partition_count))

    def failed_ids(self) -> list[uuid.UUID]:
        """Return the ids of the directories that are offline until the next start."""
        return [it.directory_id for it in self.all if it.directory_id and it.health.failure is not None]

    def unwritable_ids(self) -> list[uuid.UUID]:
        """Return the ids of the directories that refuse writes at present but have not failed."""
        return [
            it.directory_id
            for it in self.all
            if it.directory_id and it.health.failure is None and it.health.refusal is not None
        ]

    def probe(self) -> None:
        """Test whether directories that refuse writes accept them again; for a worker thread."""
        for directory in self.all:
            directory.health.probe(self.files)

    def _health_changed(self) -> None:
        if self.on_health_change is not None:
            self.on_health_change()

    def _health_of(self, path: str) -> DirectoryHealth | None:
        found = [it for it in self.all if path == it.path or path.startswith(it.path.rstrip("/") + "/")]
        return max(found, key=lambda it: len(it.path)).health if found else None


def unusable(path: str, fault: OSError) -> str:
    """Return the line for the operator about an unusable directory or file that a start needs."""
    return f"{os.fspath(fault.filename or path)} cannot be used: {fault.strerror or fault}"
