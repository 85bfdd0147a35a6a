"""One directory of `log.dirs`: its lock, its identity, its checkpoints, and the names of its partitions."""

from __future__ import annotations

import fcntl
import logging
import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from ...protocol.topic_partition import TopicPartition
from . import checkpoints, paths
from .directory_health import DirectoryHealth
from .files import Files

logger = logging.getLogger(__name__)

ALL_DIRECTORY_IDS = "gregor.log.directory.ids"
"""The key in meta.properties for the ids of all directories that have logs of the broker, joined by commas."""
KNOWN_VERSIONS = ("0", "1")
"""The known versions of meta.properties: of brokers with ZooKeeper, and of KRaft brokers like ours."""


class StorageUnavailableError(Exception):
    """A log directory that cannot be used; `str()` is one line that says what to change."""


class UnopenedLog(NamedTuple):
    """The entries of the checkpoint files for a log that could not be opened."""

    recovery_point: int
    log_start_offset: int
    high_watermark: int


class LogDirectory:
    """A directory of partitions that one broker has locked."""

    def __init__(self, files: Files, path: str, health: DirectoryHealth | None = None) -> None:
        self._files = files
        self.health = DirectoryHealth(path) if health is None else health
        self._lock: int | None = None
        self.path = path
        self.was_closed_cleanly = False
        self.partition_count = 0
        """The number of open logs in the directory; new logs go to the directory with the fewest."""
        self.directory_id: uuid.UUID | None = None
        self.unopened: dict[TopicPartition, UnopenedLog] = {}
        """Logs that could not be opened; their entries in the checkpoint files are kept."""
        self.kept_recovery_points: dict[TopicPartition, int] = {}
        """Entries of the recovery point checkpoint that are kept, whatever state the logs are in."""
        self._written: dict[str, dict[TopicPartition, int]] = {}

    def open(self, *, node_id: int, cluster_id: str | None) -> str | None:
        """Create, lock and identify the directory; return its cluster id.

        The clean-shutdown marker is removed, so that a crash from now on is detected. Raises StorageUnavailableError.
        """
        try:
            self.lock()
            marker = self._named(paths.CLEAN_SHUTDOWN)
            self.was_closed_cleanly = self._files.exists(marker)
            self._files.remove(marker)
            return self.identify(node_id, cluster_id)
        except OSError as fault:
            self.unlock()
            raise StorageUnavailableError(
                f"log directory {self.path} cannot be used ({fault.strerror or fault}): "
                "make it writable or name another one in log.dirs"
            ) from fault
        except StorageUnavailableError:
            self.unlock()
            raise

    def lock(self) -> None:
        """Create the directory and lock it against other brokers. Raises StorageUnavailableError, OSError."""
        self._files.make_directory(self.path)
        self._lock = os.open(self._named(paths.LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # Kafka's JVM takes the POSIX lock; the other lock also excludes a second broker in this process.
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as fault:
            raise StorageUnavailableError(
                f"log directory {self.path} is in use by another broker: stop it or name another one in log.dirs"
            ) from fault

    def unlock(self) -> None:
        """Release the lock of the directory."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def identify(self, node_id: int, cluster_id: str | None) -> str | None:
        """Compare with meta.properties and add missing keys to it; return the cluster id, if there is one yet.

        Raises StorageUnavailableError if the directory belongs to another cluster or node or its file has an unknown
        version; OSError.
        """
        path = self._named(paths.META_PROPERTIES)
        try:
            properties = checkpoints.read_properties(self._files, path)
        except checkpoints.MalformedCheckpointError as fault:
            logger.warning("%s: %s: rewriting it", path, fault)
            properties = {}
        self._check_version(path, properties)
        found_cluster = properties.get("cluster.id")
        found_node = properties.get("node.id") or properties.get("broker.id")
        if found_cluster and cluster_id and found_cluster != cluster_id:
            raise StorageUnavailableError(
                f"log directory {self.path} belongs to cluster {found_cluster}, not {cluster_id}: "
                f"name another one in log.dirs, or remove {path} to take it over"
            )
        if found_node and found_node != str(node_id):
            raise StorageUnavailableError(
                f"log directory {self.path} belongs to node {found_node}, not {node_id}: set node.id={found_node}, "
                "or name another one in log.dirs"
            )
        try:
            self.directory_id = checkpoints.decode_uuid(properties["directory.id"])
        except (KeyError, ValueError):
            self.directory_id = uuid.uuid4()
        cluster = found_cluster or cluster_id
        wanted = {"version": "1", "node.id": str(node_id), "directory.id": checkpoints.encode_uuid(self.directory_id)}
        if cluster:
            wanted["cluster.id"] = cluster
        if ALL_DIRECTORY_IDS in properties:
            wanted[ALL_DIRECTORY_IDS] = properties[ALL_DIRECTORY_IDS]
        if properties != wanted:
            checkpoints.write_properties(self._files, path, wanted)
        return cluster

    def noted_ids(self) -> set[uuid.UUID]:
        """Return the valid ids of the broker's log directories that meta.properties lists. Raises OSError."""
        ids = set()
        with suppress(checkpoints.MalformedCheckpointError):
            properties = checkpoints.read_properties(self._files, self._named(paths.META_PROPERTIES))
            for text in filter(None, properties.get(ALL_DIRECTORY_IDS, "").split(",")):
                with suppress(ValueError):
                    ids.add(checkpoints.decode_uuid(text))
        return ids

    def note_ids(self, ids: Iterable[uuid.UUID]) -> None:
        """Write the ids of the broker's log directories to meta.properties, if they have changed. Raises OSError."""
        path = self._named(paths.META_PROPERTIES)
        properties = checkpoints.read_properties(self._files, path)
        noted = ",".join(sorted(map(checkpoints.encode_uuid, ids)))
        if properties.get(ALL_DIRECTORY_IDS) != noted:
            checkpoints.write_properties(self._files, path, properties | {ALL_DIRECTORY_IDS: noted})

    def _check_version(self, path: str, properties: dict[str, str]) -> None:
        """Refuse an unknown version of meta.properties (Kafka `MetaPropertiesVersion.fromNumberString`)."""
        version = properties.get("version", KNOWN_VERSIONS[0])
        if version not in KNOWN_VERSIONS:
            raise StorageUnavailableError(
                f"log directory {self.path} cannot be used (Unknown meta.properties version number {version}): "
                f"it was written by a later version; name another one in log.dirs, or mend {path}"
            )

    def partitions(self) -> Iterator[TopicPartition]:
        """Iterate over the partitions that have a directory here. Raises OSError."""
        for name in self._files.list(self.path):
            partition = paths.parse_partition_directory(name)
            if partition is not None and self._files.is_directory(self._named(name)):
                yield partition

    def removable(self) -> list[str]:
        """List the directories of deleted partitions and of interrupted moves to this directory. Raises OSError."""
        names = self._files.list(self.path)
        return [
            self._named(name) for name in names if paths.is_deleted_directory(name) or paths.is_future_directory(name)
        ]

    def future_path(self, name: TopicPartition) -> str:
        """Return the path of a new directory for a partition that is moved from another log directory."""
        return self._named(paths.future_directory(*name, uuid.uuid4().hex))

    def sync_names(self) -> None:
        """Flush the names of partitions to the disk. Raises OSError."""
        self._files.sync_directory(self.path)

    def partition_path(self, name: TopicPartition) -> str:
        """Return the path of the partition's directory."""
        return self._named(paths.partition_directory(*name))

    def read_checkpoint(self, file_name: str) -> dict[TopicPartition, int]:
        """Read the offsets of a checkpoint file; if the file is malformed, log a warning and return no offsets."""
        path = self._named(file_name)
        try:
            return checkpoints.read_offsets(self._files, path)
        except (checkpoints.MalformedCheckpointError, OSError) as fault:
            logger.warning("%s: %s: file ignored", path, fault)
            return {}

    def write_checkpoint(self, file_name: str, offsets: dict[TopicPartition, int]) -> None:
        """Replace one of the checkpoint files, if anything has changed. Raises OSError."""
        if self._written.get(file_name) == offsets:
            return
        try:
            checkpoints.write_offsets(self._files, self._named(file_name), offsets)
        except OSError as fault:
            self.health.write_refused(fault)
            raise
        self._written[file_name] = offsets

    def mark_closed(self) -> None:
        """Write the clean-shutdown marker after all logs were closed. Raises OSError."""
        checkpoints.write_clean_shutdown(self._files, self._named(paths.CLEAN_SHUTDOWN))

    def _named(self, name: str) -> str:
        return f"{self.path}/{name}"
