"""Read-only checks of whole log directories; see `verification` for the checks of each partition."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from ...protocol.topic_partition import TopicPartition
from ..disk import checkpoints, paths
from ..disk.files import Files
from .verification import Finding, Progress, segment_bytes, verify_partition

_CHECKPOINTS = {
    paths.RECOVERY_POINT_CHECKPOINT: "ignored: after a crash all segments are read",
    paths.LOG_START_CHECKPOINT: "ignored: deleted records may reappear",
    paths.CLEANER_CHECKPOINT: "ignored: compaction restarts at the log's start",
}
"""The consequence of each unreadable file, by file name."""

_FLOCK = Struct("@hhqqi4x")
"""Linux's struct flock: type, whence, start, length, process id."""


class Checked(NamedTuple):
    """The directories of partitions to check, with their log directory."""

    log_directory: str
    partitions: list[str]
    is_live: bool
    """Whether a broker, Gregor or Kafka, has the log directory open, or whether this is unknown."""


def find_partitions(files: Files, directory: str) -> Checked:
    """List the partitions to check: all of a log directory, or the one in `directory`. Raises OSError."""
    names = sorted(files.list(directory))
    partitions = [
        f"{directory}/{name}"
        for name in names
        if paths.parse_partition_directory(name) is not None and files.is_directory(f"{directory}/{name}")
    ]
    is_partition = paths.parse_partition_directory(os.path.basename(os.path.abspath(directory))) is not None
    if is_partition and not partitions:
        log_directory = os.path.dirname(os.path.abspath(directory))
        return Checked(log_directory, [directory], is_in_use(log_directory))
    return Checked(directory, partitions, is_in_use(directory))


def total_bytes(files: Files, checked: Checked) -> int:
    """Return the size of the segments of all partitions, in bytes. Raises OSError."""
    return sum(segment_bytes(files, directory) for directory in checked.partitions)


def verify_log_directory(files: Files, checked: Checked, progress: Progress | None = None) -> Iterator[Finding]:
    """Check the checkpoints of the partitions, then each partition. Raises OSError."""
    log_starts: dict[TopicPartition, int] = {}
    for name, remedy in _CHECKPOINTS.items():
        path = f"{checked.log_directory}/{name}"
        try:
            offsets = checkpoints.read_offsets(files, path)
        except checkpoints.MalformedCheckpointError as fault:
            yield Finding(path, None, str(fault), remedy)
            continue
        if name == paths.LOG_START_CHECKPOINT:
            log_starts = offsets
    path = f"{checked.log_directory}/{paths.META_PROPERTIES}"
    try:
        checkpoints.read_properties(files, path)
    except checkpoints.MalformedCheckpointError as fault:
        yield Finding(path, None, str(fault), "rewritten")
    for directory in checked.partitions:
        partition = paths.parse_partition_directory(os.path.basename(os.path.abspath(directory)))
        log_start = log_starts.get(partition, 0) if partition is not None else 0
        try:
            yield from verify_partition(
                files, directory, log_start_offset=log_start, is_live=checked.is_live, progress=progress
            )
        except FileNotFoundError:
            # The partition was deleted meanwhile.
            if not checked.is_live or files.exists(directory):
                raise


def is_in_use(log_directory: str) -> bool:
    """Return whether a process holds the lock of the log directory, without taking the lock from a broker.

    Returns True if the system does not report locks. Raises OSError, but not for a missing lock file.
    """
    try:
        descriptor = os.open(f"{log_directory}/{paths.LOCK}", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        if not sys.platform.startswith("linux"):
            return True
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, *_ = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
        return bool(kind != fcntl.F_UNLCK)
    finally:
        os.close(descriptor)
