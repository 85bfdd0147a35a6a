"""Segment files written by tasks, complete or not at all, so that a task that runs twice changes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from ...storage.disk.paths import offset_file, partition_directory

BUFFER_BYTES = 4 << 20


def segment_path(log_dir: Path, topic: str, partition: int, base_offset: int) -> Path:
    """Return the path of a partition's segment under a log directory."""
    return log_dir / partition_directory(topic, partition) / offset_file(base_offset, ".log")


def write_segment(path: Path, batches: Iterable[bytes]) -> int:
    """Write stored batches, which must be in order, as the segment `path`; return its size in bytes.

    An existing file of that name is replaced atomically, after the new bytes are on the disk. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}.part")
    try:
        with temporary.open("wb", buffering=BUFFER_BYTES) as file:
            for batch in batches:
                file.write(batch)
            file.flush()
            os.fsync(file.fileno())
            size_bytes = file.tell()
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return size_bytes
