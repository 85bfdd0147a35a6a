"""Recovery of a controller that has lost its metadata, from the copy of a broker.

Each broker keeps a copy of the controller's metadata log (`peers/metadata_follower.py`), in files of the same kind. The
controller that starts with such a copy starts a leader epoch after all epochs in the copy.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from uuid import uuid4

from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.internal_topics import CLUSTER_METADATA
from ...protocol.topic_partition import TopicPartition
from ...storage.clock import SystemClock
from ...storage.disk import checkpoints, paths
from ...storage.disk.files import OsFiles
from ...storage.disk.log_directory import LogDirectory
from ...storage.log.log_config import LONG_MAX, LogConfig
from ...storage.log.partition_log import PartitionLog
from .log import MetadataLog
from .state import ClusterState

NAME = TopicPartition(CLUSTER_METADATA, 0)
SNAPSHOT_SUFFIX = ".checkpoint"
COPIED_SUFFIXES = (paths.LOG, SNAPSHOT_SUFFIX)
COPIED_NAMES = (paths.LEADER_EPOCH_CHECKPOINT, paths.PARTITION_METADATA)


@dataclass(frozen=True, slots=True)
class MetadataCopy:
    """A copy of the metadata in one broker's log directory."""

    source: str
    """The log directory of the copy."""
    end_offset: int
    epoch: int
    topic_count: int


@dataclass(frozen=True, slots=True)
class Recovery:
    """A result of `recover`."""

    copies: tuple[MetadataCopy, ...]
    """All copies; the first one was installed."""
    former: str | None
    """The directory in which the controller's previous log is kept; None if it had none."""


def recover(target: str, sources: Sequence[str], *, node_id: int | None = None) -> Recovery:
    """Replace the metadata log in ``target`` by the longest copy in ``sources`` (log directories).

    The brokers of ``sources`` may be running; the controller must not. ``node_id`` is for a target without
    meta.properties. Raises BrokerError (its text is for the operator), StorageUnavailableError, OSError.
    """
    files = OsFiles()
    cluster_id = _common_cluster_id(files, sources)
    directory = LogDirectory(files, target.rstrip("/") or "/")
    directory.lock()
    try:
        known = checkpoints.read_properties(files, f"{directory.path}/{paths.META_PROPERTIES}")
        own_id = known.get("node.id") or known.get("broker.id") or node_id
        if own_id is None:
            raise _refused(f"{target} has no node id: give the controller's with --node-id")
        with _staged(files, directory, sources) as staged:
            chosen = staged[0]
            _check_histories(staged)
            directory.identify(int(own_id), cluster_id)
            former = _replace(files, directory, chosen)
        points = directory.read_checkpoint(paths.RECOVERY_POINT_CHECKPOINT)
        directory.write_checkpoint(paths.RECOVERY_POINT_CHECKPOINT, {**points, NAME: chosen.copy.end_offset})
    finally:
        directory.unlock()
    return Recovery(tuple(it.copy for it in staged), former)


@dataclass(frozen=True, slots=True)
class _Staged:
    copy: MetadataCopy
    log: PartitionLog
    metadata: MetadataLog


@contextmanager
def _staged(files: OsFiles, directory: LogDirectory, sources: Sequence[str]) -> Iterator[list[_Staged]]:
    """Yield copies of the logs in temporary directories, checked up to their ends, the longest one first."""
    with ExitStack() as cleaning:
        staged = []
        for source in sources:
            folder = directory.future_path(NAME)
            cleaning.callback(files.remove_tree, folder)
            staged.append(_stage(source, f"{folder}/{paths.partition_directory(*NAME)}"))
            cleaning.callback(staged[-1].log.abandon)
        yield sorted(staged, key=lambda it: it.copy.end_offset, reverse=True)


def _stage(source: str, folder: str) -> _Staged:
    os.makedirs(folder)
    original = f"{source}/{paths.partition_directory(*NAME)}"
    # A snapshot is complete once it has its name, and older segments may be removed then: copy segments first.
    for name in sorted(os.listdir(original), reverse=True):
        if name.endswith(COPIED_SUFFIXES) or name in COPIED_NAMES:
            shutil.copyfile(f"{original}/{name}", f"{folder}/{name}")
    clock = SystemClock()
    log = PartitionLog.open(folder, LogConfig(retention_ms=-1), clock)
    metadata = MetadataLog(log, clock, snapshot_every_bytes=LONG_MAX)
    state = ClusterState()
    metadata.replay(state.apply)
    if metadata.start_offset > 0 and metadata.newest_snapshot() is None:
        raise _refused(f"{original} begins at offset {metadata.start_offset} and has no snapshot: use another copy")
    if not metadata.end_offset:
        raise _refused(f"{original} is empty: use another copy")
    copy = MetadataCopy(source, metadata.end_offset, metadata.last_epoch, len(state.topics))
    return _Staged(copy, log, metadata)


def _check_histories(staged: Sequence[_Staged]) -> None:
    """Raise BrokerError if a shorter copy is not a prefix of the longest one."""
    longest = staged[0]
    for shorter in staged[1:]:
        last = shorter.metadata.last_batch()
        if last is None or last[0] < longest.metadata.start_offset:
            continue
        offset, batch = last
        if not longest.metadata.read(offset, len(batch)).startswith(batch):
            raise _refused(
                f"the metadata in {shorter.copy.source} is not a prefix of that in {longest.copy.source}: they "
                "are logs of two controllers. Name only brokers that followed the same one"
            )


def _replace(files: OsFiles, directory: LogDirectory, chosen: _Staged) -> str | None:
    """Install a copy as the controller's log; return the new path of the previous log, if there was one."""
    chosen.log.close()
    for name in os.listdir(chosen.log.directory):
        with open(f"{chosen.log.directory}/{name}", "rb+") as file:
            os.fsync(file.fileno())
    files.sync_directory(chosen.log.directory)
    place = directory.partition_path(NAME)
    former = None
    if files.exists(place):
        former = f"{directory.path}/{paths.stray_directory(*NAME, uuid4().hex)}"
        files.rename(place, former)
    files.rename(chosen.log.directory, place)
    directory.sync_names()
    return former


def _common_cluster_id(files: OsFiles, sources: Sequence[str]) -> str:
    """Return the cluster id of all copies. Raises BrokerError if they differ."""
    found: dict[str, str] = {}
    for source in sources:
        if not files.is_directory(f"{source}/{paths.partition_directory(*NAME)}"):
            raise _refused(f"{source} has no {paths.partition_directory(*NAME)}: name a broker's log directory")
        cluster_id = checkpoints.read_properties(files, f"{source}/{paths.META_PROPERTIES}").get("cluster.id")
        if cluster_id is None:
            raise _refused(f"{source}/{paths.META_PROPERTIES} has no cluster.id")
        found[cluster_id] = source
    if len(found) > 1:
        listed = ", ".join(f"{source} to {cluster_id}" for cluster_id, source in found.items())
        raise _refused(f"the copies belong to different clusters: {listed}")
    return next(iter(found))


def _refused(reason: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, reason)
