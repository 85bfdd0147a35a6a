"""The partitions and segments in log directories, opened for reading only.

The end of a partition's log depends on the state of the directory:

- A broker has the directory open: complete batches below the high watermark, if `replication-offset-checkpoint` has it.
- No process has it open, after a crash: the batches that the broker's recovery would keep, so every batch behind the
  recovery point is checked.
- It was closed cleanly, or the directories were copied: every complete batch.

The last batch of a log may be torn, and is left out; bytes that cannot be the beginning of a batch are damage
anywhere.
"""

from __future__ import annotations

import fnmatch
import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from ...protocol.errors import BrokerError
from ...protocol.records.batches import read_batch
from ...protocol.records.headers_cy import seek
from ...protocol.topic_partition import TopicPartition
from ...storage.disk import checkpoints, paths
from ...storage.disk.files import OsFile, OsFiles, OsMappedTable
from ...storage.disk.open_files import OpenFiles
from ...storage.index.index_format import IndexDamagedError
from ...storage.index.offset_index import OffsetIndex
from ...storage.recovery.directory_verification import find_partitions
from ...storage.recovery.recovery import ScanRules, scan
from ..errors import DamagedLogError, OptionError, reason
from ..local_paths import local_path

MAX_INT64 = 2**63 - 1
ANY_TIME = -(2**63)
FILES_OPEN = 16


class ReadOnlyFiles(OsFiles):
    """The operating system's files without write access: directories may belong to other programs, or be archives."""

    __slots__ = ()

    def open(self, path: str, *, create: bool = False) -> OsFile:
        """Open a file for reading. Raises OSError."""
        return _ReadOnlyFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC))


class _ReadOnlyFile(OsFile):
    __slots__ = ()

    def map_table(self, size_bytes: int) -> OsMappedTable:
        return OsMappedTable(mmap.mmap(self.descriptor, size_bytes, access=mmap.ACCESS_READ))


class SegmentFile(NamedTuple):
    """A `.log` file: complete batches up to `size_bytes`. `identity` changes if another file replaces it."""

    base_offset: int
    path: str
    size_bytes: int
    identity: tuple[int, int]


@dataclass(frozen=True, slots=True)
class PartitionFiles:
    """A partition with at least one segment. Offsets from its start up to but not including its end are valid.

    `stored_end_offset` is the offset after the last complete batch, which may be beyond the valid end.
    """

    name: TopicPartition
    segments: Sequence[SegmentFile]
    log_start_offset: int
    log_end_offset: int
    stored_end_offset: int


class _DirectoryState(NamedTuple):
    """The contents of a log directory's checkpoints."""

    is_live: bool
    has_crashed: bool
    log_starts: dict[TopicPartition, int]
    high_watermarks: dict[TopicPartition, int]
    recovery_points: dict[TopicPartition, int]


def list_partitions(directories: Sequence[str], topics: Sequence[str]) -> Iterator[PartitionFiles]:
    """Yield the partitions in log directories (or single partition directories) whose topics match one of the globs.

    Without globs all match. Raises OptionError for a path that is not such a directory and, at the end, for a glob
    that matches no topic; DamagedLogError.
    """
    files = ReadOnlyFiles()
    in_vain = set(topics)
    for directory in directories:
        try:
            found = find_partitions(files, str(local_path(directory)))
        except OSError as fault:
            raise OptionError(f"path {directory}: {fault.strerror or fault}") from fault
        state = _read_state(files, found.log_directory, is_live=found.is_live)
        for path in found.partitions:
            name = paths.parse_partition_directory(os.path.basename(os.path.abspath(path)))
            matching = {glob for glob in topics if name is not None and fnmatch.fnmatchcase(name.topic, glob)}
            in_vain -= matching
            if name is not None and (matching or not topics):
                partition = _open_partition(files, path, name, state)
                if partition is not None:
                    yield partition
    if in_vain:
        raise OptionError(f"no topic {min(in_vain)} in {', '.join(directories)}")


def segments_of(files: OsFiles, directory: str) -> list[SegmentFile]:
    """Return the segments of a partition's directory by their offsets. Raises OSError if the directory is missing."""
    segments = []
    for parsed in map(paths.parse_offset_file, files.list(directory)):
        if parsed is not None and parsed.kind == paths.LOG and not parsed.state:
            path = f"{directory}/{paths.offset_file(parsed.offset, paths.LOG)}"
            with suppress(FileNotFoundError):
                status = os.stat(path)
                segments.append(SegmentFile(parsed.offset, path, status.st_size, (status.st_dev, status.st_ino)))
    return sorted(segments)


def mapped(segment: SegmentFile, size_bytes: int | None = None) -> memoryview:
    """Map the segment's first bytes (all by default) into memory. Raises OSError."""
    size_bytes = segment.size_bytes if size_bytes is None else size_bytes
    if size_bytes == 0:
        return memoryview(b"")
    file = ReadOnlyFiles().open(segment.path)
    try:
        return file.map(0, min(size_bytes, file.size()))
    finally:
        file.close()


class SegmentIndex:
    """Look-ups in a segment's `.gindex`; without a valid index they return 0, and the log is scanned from there.

    Each result is checked: a position where no batch begins is discarded.
    """

    def __init__(self, segment: SegmentFile, stored: memoryview) -> None:
        self._stored = stored
        self._pool = OpenFiles(ReadOnlyFiles(), FILES_OPEN)
        path = segment.path.removesuffix(paths.LOG) + paths.INDEX
        self._index = OffsetIndex(self._pool, path, segment.base_offset, 0)

    def close(self) -> None:
        """Close the file."""
        self._index.release_file()

    def before_offset(self, offset: int) -> int:
        """Return the position of a batch before which all batches end below `offset`."""
        try:
            return self._believed(self._index.position_before_offset(offset))
        except (IndexDamagedError, OSError, ValueError):
            return 0

    def before_timestamp(self, timestamp_ms: int) -> int:
        """Return the position of a batch before which all batches are older."""
        try:
            return self._believed(self._index.position_before_timestamp(timestamp_ms))
        except (IndexDamagedError, OSError, ValueError):
            return 0

    def before_position(self, position: int) -> int:
        """Return the position of a batch at or before `position`."""
        try:
            entry = self._index.tags_at(position)
        except (IndexDamagedError, OSError, ValueError):
            return 0
        return 0 if entry is None else self._believed(entry.position)

    def _believed(self, position: int) -> int:
        if not 0 < position < len(self._stored):
            return 0
        try:
            batch = read_batch(self._stored, position)
        except BrokerError:
            return 0
        return position if batch is not None and batch.crc_is_valid else 0


def _read_state(files: OsFiles, directory: str, *, is_live: bool) -> _DirectoryState:
    def offsets(name: str) -> dict[TopicPartition, int]:
        try:
            return checkpoints.read_offsets(files, f"{directory}/{name}")
        except (checkpoints.MalformedCheckpointError, OSError):
            return {}

    is_a_brokers = files.exists(f"{directory}/{paths.META_PROPERTIES}")
    return _DirectoryState(
        is_live=is_live,
        has_crashed=is_a_brokers and not is_live and not files.exists(f"{directory}/{paths.CLEAN_SHUTDOWN}"),
        log_starts=offsets(paths.LOG_START_CHECKPOINT),
        high_watermarks=offsets(paths.REPLICATION_CHECKPOINT),
        recovery_points=offsets(paths.RECOVERY_POINT_CHECKPOINT),
    )


def _open_partition(
    files: OsFiles, directory: str, name: TopicPartition, state: _DirectoryState
) -> PartitionFiles | None:
    try:
        segments = segments_of(files, directory)
    except FileNotFoundError:
        return None
    if not segments:
        return None
    if state.has_crashed:
        segments, stored_end_offset = _recovered(segments, state.recovery_points.get(name, 0))
    else:
        segments[-1], stored_end_offset = _without_torn_tail(name, segments[-1])
    end_offset = stored_end_offset
    if state.is_live:
        end_offset = min(end_offset, state.high_watermarks.get(name, end_offset))
    start_offset = max(state.log_starts.get(name, 0), segments[0].base_offset)
    return PartitionFiles(name, segments, start_offset, max(end_offset, start_offset), stored_end_offset)


def _without_torn_tail(name: TopicPartition, segment: SegmentFile) -> tuple[SegmentFile, int]:
    """Return the segment up to its last complete batch, and the offset after that batch.

    Raises DamagedLogError if the following bytes are not a batch at all, OSError.
    """
    stored = mapped(segment)
    index = SegmentIndex(segment, stored)
    try:
        end, end_offset = seek(stored, index.before_position(len(stored)), len(stored), MAX_INT64, ANY_TIME)
    finally:
        index.close()
    try:
        read_batch(stored, end)
    except BrokerError as fault:
        if any(stored[end:]):
            raise DamagedLogError(
                *name, max(end_offset, 0), f"{segment.path} at byte {end}: {reason(fault)}"
            ) from fault
    return segment._replace(size_bytes=end), max(end_offset, segment.base_offset)


def _recovered(segments: list[SegmentFile], recovery_point: int) -> tuple[list[SegmentFile], int]:
    """Return the segments that a broker's recovery would keep, up to a bad batch behind the recovery point, and the end
    offset.
    """
    kept = [segment for segment, after in pairwise(segments) if after.base_offset <= recovery_point]
    end_offset = segments[0].base_offset
    for segment in segments[len(kept) :]:
        result = scan(mapped(segment), ScanRules(segment.base_offset, segment.base_offset))
        kept.append(segment._replace(size_bytes=result.valid_bytes))
        end_offset = result.next_offset
        if result.reason is not None:
            break
    return kept, end_offset
