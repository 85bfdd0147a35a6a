"""Opening of one partition's directory: all of its files are read and made consistent with the segments."""

from __future__ import annotations

import logging
import uuid
from typing import NamedTuple

from ...protocol.records import v2
from ..disk import paths
from ..disk.checkpoints import MalformedCheckpointError
from ..disk.directory_health import DirectoryHealth
from ..disk.files import Files
from ..disk.open_files import OpenFiles
from ..log.leader_epochs import LeaderEpochs
from ..log.log_config import LogConfig
from ..log.log_segments import LogSegments
from ..log.topic_id_file import TopicIdFile
from ..producers.snapshot_files import SnapshotFiles
from .segment_opening import SegmentOpener

logger = logging.getLogger(__name__)


class OpenedLog(NamedTuple):
    """The opened contents of a partition's directory."""

    segments: LogSegments
    epochs: LeaderEpochs
    snapshots: SnapshotFiles
    log_start_offset: int
    identity: TopicIdFile


class OpeningFacts(NamedTuple):
    """The facts about a log that are known before it is opened; see `PartitionLog.open`."""

    topic_id: uuid.UUID | None
    log_start_offset: int
    recovery_point: int
    is_clean: bool
    health: DirectoryHealth
    """The health of the log directory."""


def open_log(pool: OpenFiles, directory: str, config: LogConfig, now_ms: int, facts: OpeningFacts) -> OpenedLog:
    """Open the directory, or create an empty log there. Raises OSError."""
    pool.files.make_directory(directory)
    epochs = _load_epochs(pool.files, directory)
    snapshots = SnapshotFiles(pool.files, directory)
    opened = SegmentOpener(pool, directory, config, now_ms, epochs).open(
        is_clean=facts.is_clean,
        recovery_point=facts.recovery_point,
        first_offset=facts.log_start_offset,
    )
    segments = LogSegments(pool, directory, opened.segments)
    log_start_offset = max(facts.log_start_offset, segments.base_offset)
    if log_start_offset > segments.active.next_offset:
        logger.warning("%s: log start offset %d is beyond its end: all records removed", directory, log_start_offset)
        segments.restart(log_start_offset, index_interval_bytes=config.index_interval_bytes, now_ms=now_ms)
        snapshots.remove_outside(0, -1)
    elif opened.recovered_from is not None:
        # Files that are not synced in order may be newer than the log after a crash.
        snapshots.remove_outside(0, opened.recovered_from)
    _fit_epochs(epochs, segments, log_start_offset)
    identity = TopicIdFile(pool.files, directory)
    identity.load(facts.topic_id)
    return OpenedLog(segments, epochs, snapshots, log_start_offset, identity)


def _load_epochs(files: Files, directory: str) -> LeaderEpochs:
    epochs = LeaderEpochs(files, f"{directory}/{paths.LEADER_EPOCH_CHECKPOINT}")
    try:
        epochs.load()
    except MalformedCheckpointError as fault:
        logger.warning("%s: %s: rebuilding it", epochs.path, fault)
        epochs.clear()
    return epochs


def _fit_epochs(epochs: LeaderEpochs, segments: LogSegments, log_start_offset: int) -> None:
    """Truncate the epochs to the range of the segments, or read them from the batches if there are none."""
    end_offset = segments.active.next_offset
    epochs.truncate_from_end(end_offset)
    if epochs.latest >= 0 or end_offset == log_start_offset:
        return
    for segment in segments.since(log_start_offset):
        if segment.magics & (1 << v2.MAGIC):
            for batch in segment.batches_from(0):
                epochs.assign(batch.leader_epoch, batch.stored_offset)
