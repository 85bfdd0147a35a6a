"""Log directories of Gregor or Kafka, the second of the two forms of seed data that ``gregor.load`` reads."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from ...protocol.records.batches import iter_batches
from ...storage.disk import paths

logger = logging.getLogger(__name__)

CHUNK_BYTES = 1 << 20


def partition_directories(directory: Path) -> dict[str, dict[int, Path]]:
    """Return the directories of partitions in a log directory by topic and index. Raises OSError.

    Topics with names that begin with two underscores are left out: they hold the state of another broker.
    """
    found: dict[str, dict[int, Path]] = {}
    for path in sorted(directory.iterdir()):
        name = paths.parse_partition_directory(path.name)
        if name is not None and not name.topic.startswith("__") and path.is_dir():
            found.setdefault(name.topic, {})[name.partition] = path
    return found


def stored_batches(directory: Path) -> Iterator[bytes]:
    """Yield the batches of a partition as they are stored, some whole ones at a time, in the order of their offsets.

    A partial batch at the end, as an interrupted write leaves it, is left out. Raises OSError, BrokerError
    CORRUPT_MESSAGE.
    """
    names = {path: paths.parse_offset_file(path.name) for path in directory.iterdir()}
    segments = [
        (name.offset, path) for path, name in names.items() if name and name.kind == paths.LOG and not name.state
    ]
    for _, path in sorted(segments):
        yield from _batches_of_segment(path)


def _batches_of_segment(path: Path) -> Iterator[bytes]:
    rest = b""
    with path.open("rb") as file:
        while data := file.read(CHUNK_BYTES):
            rest += data
            end = 0
            for batch in iter_batches(rest):
                end = batch.end
            if end:
                yield rest[:end]
                rest = rest[end:]
    if rest:
        logger.warning("gregor.load: %s ends inside a batch: %d bytes are left out", path, len(rest))
