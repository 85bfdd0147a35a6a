"""The replacement of segments by their compacted versions, atomic with respect to crashes.

1. Each new segment is written as `<base>.log.cleaned` with its indexes, and synced.
2. One rename creates `<base>.swap`, which commits the replacement. Each line has a new segment's base offset and those
of the segments that it replaces; the last line has the CRC-32 of the lines before it. 3. The old segments are deleted,
the new files are renamed, and `.swap` is deleted last. A start after a crash repeats this step.

An unfinished swap of Kafka's (`<base>.log.swap`) is completed as Kafka does it.
"""

from __future__ import annotations

import logging
import zlib
from typing import NamedTuple

from ..disk import paths
from ..disk.checkpoints import MalformedCheckpointError, format_lines, parse_lines
from ..disk.files import Files
from ..recovery.recovery import ScanRules, scan

logger = logging.getLogger(__name__)

KINDS = (paths.INDEX, paths.TRANSACTION_INDEX, paths.LOG)
"""The kinds of files in the order of the renames: the swap is not complete until the log file has its name."""


class Replacement(NamedTuple):
    """The base offset of a cleaned segment, and those of the segments that it replaces, including its own."""

    base_offset: int
    replaced: tuple[int, ...]


def commit_swap(files: Files, directory: str, replacements: list[Replacement]) -> None:
    """Commit the swap (step 2). Raises OSError."""
    lines = [" ".join(map(str, [base_offset, *replaced])) for base_offset, replaced in replacements]
    lines.append(_checksum(lines))
    files.replace(_swap_path(directory, replacements[0].base_offset), format_lines(lines))


def put_in_place(files: Files, directory: str, replacement: Replacement) -> None:
    """Replace the old segments by one new segment (step 3, repeatable). Raises OSError.

    No other thread may be writing to the old segments.
    """
    base_offset, replaced = replacement
    if files.exists(_path(directory, base_offset, paths.LOG) + paths.CLEANED):
        for offset in replaced:
            files.remove(_path(directory, offset, paths.LOG))
        for kind in KINDS:
            target = _path(directory, base_offset, kind)
            if files.exists(target + paths.CLEANED):
                files.rename(target + paths.CLEANED, target)
            elif kind == paths.TRANSACTION_INDEX:
                files.remove(target)
    for offset in replaced:
        if offset != base_offset:
            for kind in KINDS:
                files.remove(_path(directory, offset, kind))


def end_swap(files: Files, directory: str, replacements: list[Replacement]) -> None:
    """Complete step 3. Raises OSError."""
    files.sync_directory(directory)
    files.remove(_swap_path(directory, replacements[0].base_offset))


def finish_swaps_of_before(files: Files, directory: str) -> None:
    """Complete committed swaps after a crash and remove the files of uncommitted ones. Raises OSError."""
    names = [name for name in map(paths.parse_offset_file, files.list(directory)) if name is not None]
    for name in names:
        if name.kind == paths.SWAP and not name.state:
            _finish_own(files, directory, name.offset)
        elif name.kind == paths.LOG and name.state == paths.SWAP:
            _finish_kafkas(files, directory, name.offset)


def _finish_own(files: Files, directory: str, base_offset: int) -> None:
    path = _swap_path(directory, base_offset)
    try:
        *lines, checksum = parse_lines(files.read(path))
        if checksum != _checksum(lines):
            raise MalformedCheckpointError("the CRC does not match")
        offsets = [[int(word) for word in line.split()] for line in lines]
        replacements = [Replacement(base_offset, tuple(replaced)) for base_offset, *replaced in offsets]
    except (MalformedCheckpointError, ValueError) as fault:
        logger.warning("%s: %s: file ignored", path, fault)
        files.remove(path)
        return
    logger.info("%s: completing a compaction that a crash interrupted", path)
    for replacement in replacements:
        put_in_place(files, directory, replacement)
    end_swap(files, directory, replacements)


def _finish_kafkas(files: Files, directory: str, base_offset: int) -> None:
    path = _path(directory, base_offset, paths.LOG)
    result = scan(files.read(path + paths.SWAP), ScanRules(base_offset, base_offset))
    if not result.batch_count or (result.reason is not None and files.exists(path)):
        # The file was synced before it got this name, so it was damaged later; the old segments are still valid.
        logger.warning("%s: %s: removed", path + paths.SWAP, result.reason or "no batches")
        files.remove(path + paths.SWAP)
        return
    end_offset = result.next_offset
    for name in map(paths.parse_offset_file, files.list(directory)):
        if name is not None and name.kind == paths.LOG and not name.state and base_offset <= name.offset < end_offset:
            files.remove(_path(directory, name.offset, paths.LOG))
    for kind in (paths.TRANSACTION_INDEX, paths.LOG):
        if files.exists(_path(directory, base_offset, kind) + paths.SWAP):
            files.rename(_path(directory, base_offset, kind) + paths.SWAP, _path(directory, base_offset, kind))


def _checksum(lines: list[str]) -> str:
    return str(zlib.crc32("\n".join(lines).encode()))


def _path(directory: str, offset: int, kind: str) -> str:
    return f"{directory}/{paths.offset_file(offset, kind)}"


def _swap_path(directory: str, base_offset: int) -> str:
    return _path(directory, base_offset, paths.SWAP)
