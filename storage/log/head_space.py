"""Release of the disk space of deleted records at the head of a segment that is still needed (KAFKA-979).

The bytes before the first remaining batch become one v2 batch without records that spans their offsets: a header and
then zeros, for which a hole in the file needs no disk space. So every reader of Kafka's format can still read the
segment, also our recovery and Kafka's tools.

The segment is changed in place, and a crash could leave a bad batch at its head. Therefore the intended change is
written to a file first (`<base>.reclaim`: position and last offset), and the next start repeats the change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Protocol

from ...protocol.records import crc_cy, v2
from ..disk import paths
from ..disk.checkpoints import MalformedCheckpointError, format_lines, parse_lines
from ..disk.files import Files, StoredFile
from .segment import Segment

logger = logging.getLogger(__name__)

LEAST_RECLAIMED_BYTES = 1 << 20
"""Fewer bytes than this are not worth the writes."""

BLOCK_BYTES = 4096
_ZEROS = bytes(1 << 20)
_UINT32 = Struct(">I")


class LogWithDeletedHead(Protocol):
    """The attributes of a log (`PartitionLog`) that this module reads."""

    @property
    def directory(self) -> str: ...
    @property
    def segments(self) -> tuple[Segment, ...]: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...


def due_reclaiming(log: LogWithDeletedHead, files: Files) -> Callable[[], None] | None:
    """Return a function for a worker thread that frees the space below the log's start; None if it is too little now.

    The function and `due_reclaiming` raise OSError; `due_reclaiming` raises BrokerError and SegmentDamagedError too.
    """
    segment = log.segments[0]
    if log.log_start_offset <= segment.base_offset or log.log_start_offset == log.log_end_offset:
        return None
    segment.load()
    place = segment.locate(log.log_start_offset)
    if place is None or segment.file.is_held:
        return None
    head = segment.locate(segment.base_offset)
    reclaimed_bytes = head.size_bytes if head is not None and head.position == 0 else 0
    if place.position - reclaimed_bytes < LEAST_RECLAIMED_BYTES:
        return None
    first_offset = next(segment.batches_from(place.position)).base_offset
    # After this no look-up in the index returns a position in the bytes that change.
    segment.index.drop_before(place.position, first_offset)
    segment.magics |= 1 << v2.MAGIC
    if segment is not log.segments[-1]:
        segment.finish()
    return partial(reclaim_head, files, log.directory, segment.base_offset, place.position, first_offset - 1)


def reclaim_head(files: Files, directory: str, base_offset: int, position: int, last_offset: int) -> None:
    """Turn the first `position` bytes of the segment into an empty batch from `base_offset` to `last_offset`.

    May run in a worker thread if no other thread reads or writes those bytes. Raises OSError.
    """
    intent = _intent_path(directory, base_offset)
    files.replace(intent, format_lines([f"{position} {last_offset}"]))
    _reclaim(files, directory, base_offset, position, last_offset)
    files.remove(intent)


def finish_reclaiming(files: Files, directory: str) -> None:
    """Repeat the changes that a crash may have interrupted. Raises OSError."""
    for name in map(paths.parse_offset_file, files.list(directory)):
        if name is None or name.kind != paths.RECLAIM or name.state:
            continue
        intent = _intent_path(directory, name.offset)
        try:
            (line,) = parse_lines(files.read(intent))
            position, last_offset = map(int, line.split())
            _reclaim(files, directory, name.offset, position, last_offset)
        except (MalformedCheckpointError, ValueError, FileNotFoundError) as fault:
            logger.warning("%s: %s: file ignored", intent, fault)
        files.remove(intent)


def _reclaim(files: Files, directory: str, base_offset: int, position: int, last_offset: int) -> None:
    file = files.open(f"{directory}/{paths.offset_file(base_offset, paths.LOG)}")
    try:
        if not v2.HEADER_SIZE <= position <= file.size():
            raise ValueError(f"position {position} is not in the segment")
        header = empty_batch_header(base_offset, last_offset, position)
        _write_all(file, header + bytes(min(BLOCK_BYTES, position) - len(header)), 0)
        _zero(file, BLOCK_BYTES, position)
        file.sync()
    finally:
        file.close()


def empty_batch_header(base_offset: int, last_offset: int, size_bytes: int) -> bytes:
    """Return the header of a batch of `size_bytes` that has no records: only zeros follow the header."""
    batch = bytearray(
        v2.assemble_batch(
            b"",
            record_count=0,
            base_offset=base_offset,
            last_offset=last_offset,
            attributes=0,
            base_timestamp=-1,
            max_timestamp=-1,
        )
    )
    _UINT32.pack_into(batch, v2.LENGTH_AT, size_bytes - v2.LEADER_EPOCH_AT)
    crc = crc_cy.crc32c(batch[v2.ATTRIBUTES_AT :])
    rest = size_bytes - v2.HEADER_SIZE
    while rest:
        zeros = min(rest, len(_ZEROS))
        crc = crc_cy.crc32c(memoryview(_ZEROS)[:zeros], crc)
        rest -= zeros
    _UINT32.pack_into(batch, v2.CRC_AT, crc)
    return bytes(batch)


def _zero(file: StoredFile, position: int, end: int) -> None:
    """Replace these bytes by zeros, with a hole in the file if the file system supports holes."""
    if position >= end:
        return
    hole_end = end - end % BLOCK_BYTES
    if hole_end > position and file.punch_hole(position, hole_end - position):
        position = hole_end
    while position < end:
        zeros = min(end - position, len(_ZEROS))
        _write_all(file, memoryview(_ZEROS)[:zeros], position)
        position += zeros


def _write_all(file: StoredFile, data: bytes | memoryview, position: int) -> None:
    rest = memoryview(data)
    while rest:
        taken = file.write_at(rest, position)
        position += taken
        rest = rest[taken:]


def _intent_path(directory: str, base_offset: int) -> str:
    return f"{directory}/{paths.offset_file(base_offset, paths.RECLAIM)}"
