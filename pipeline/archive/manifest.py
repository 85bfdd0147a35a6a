"""The manifest of an archive: which batches it holds, which offsets those cover, and in which files their rows are.

Entries are numbered from 0 without holes. An entry is written to a temporary file, synced and renamed, so it is there
whole or not at all; what it names must be on the disk before (`Manifest.commit` sees to that).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..errors import PipelineError

DATA = "data"
DEAD_LETTERS = "dead_letters"
_ENTRY_NAME = re.compile(r"(\d{20})\.json")
_BATCH_FILE = re.compile(r"(\d+)-.+")


class ManifestError(PipelineError):
    """The manifest is damaged or does not fit what is asked; `str()` is one line that names file and reason."""


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """Offsets of one partition, from `from_offset` up to but not with `until_offset`."""

    topic: str
    partition: int
    from_offset: int
    until_offset: int


@dataclass(frozen=True, slots=True)
class ArchivedBatch:
    """One entry. `files` are relative to the archive's root; `topic_ids` are by topic, as text."""

    number: int
    ranges: Sequence[OffsetRange]
    files: Sequence[str]
    rows: int
    dead_letters: int
    checksum: int
    """Sum over all rows, modulo 2**63: see `checksums`."""
    topic_ids: dict[str, str]
    partition_counts: dict[str, int] = field(default_factory=dict)
    """How many partitions each topic had."""
    replaces: Sequence[str] = ()
    """Files of earlier entries that count no more: this entry's files have their rows."""


class Manifest:
    """The entries of one archive. One process at a time may write them (`writer_lock.WriterLock`)."""

    def __init__(self, root: Path) -> None:
        """Read the manifest under `root`; an archive without one has no batches. Raises ManifestError."""
        self.root = root
        self._directory = root / "manifest"
        self.batches: list[ArchivedBatch] = []
        """All entries in the order of their numbers."""
        for number, path in enumerate(self._entry_paths()):
            batch = _read_entry(path)
            if batch.number != number:
                raise ManifestError(f"{path}: entry {number} is missing")
            self.batches.append(batch)

    @property
    def next_number(self) -> int:
        """The number of the next batch."""
        return len(self.batches)

    def positions(self) -> dict[tuple[str, int], int]:
        """By (topic, partition), the offset after the last archived one."""
        ends: dict[tuple[str, int], int] = {}
        for covered in self.ranges():
            place = (covered.topic, covered.partition)
            ends[place] = max(ends.get(place, 0), covered.until_offset)
        return ends

    def ranges(self) -> Iterator[OffsetRange]:
        """Every range of every batch."""
        for batch in self.batches:
            yield from batch.ranges

    def missing(self, wanted: OffsetRange) -> list[OffsetRange]:
        """The parts of `wanted` that no batch covers, in order."""
        parts = []
        at = wanted.from_offset
        covering = (r for r in self.ranges() if (r.topic, r.partition) == (wanted.topic, wanted.partition))
        for covered in sorted(covering):
            if covered.from_offset > at and at < wanted.until_offset:
                until = min(covered.from_offset, wanted.until_offset)
                parts.append(OffsetRange(wanted.topic, wanted.partition, at, until))
            at = max(at, covered.until_offset)
        if at < wanted.until_offset:
            parts.append(OffsetRange(wanted.topic, wanted.partition, at, wanted.until_offset))
        return parts

    def files(self) -> list[Path]:
        """Every data file that counts."""
        return [self.root / name for name in self._names() if name.startswith(f"{DATA}/")]

    def _names(self) -> dict[str, None]:
        """The files that count, in the order of their entries."""
        names: dict[str, None] = {}
        for batch in self.batches:
            for replaced in batch.replaces:
                names.pop(replaced, None)
            names.update(dict.fromkeys(batch.files))
        return names

    def check_topic_ids(self, topic_ids: dict[str, str]) -> None:
        """Raise ManifestError if a topic was deleted and made again since it was last archived."""
        for batch in self.batches:
            for topic, known in batch.topic_ids.items():
                if topic_ids.get(topic, known) != known:
                    raise ManifestError(
                        f"topic {topic} has id {topic_ids[topic]} and had {known} when batch {batch.number} was "
                        "archived: it was made again, so its offsets mean other records; archive it under another root"
                    )

    def commit(self, batch: ArchivedBatch) -> None:
        """Make `batch` count: its files and their folders are synced first. Raises ManifestError, OSError."""
        if batch.number != self.next_number:
            raise ManifestError(f"batch {batch.number} is not the next one, {self.next_number}")
        for folder in _sync_files(self.root, (self.root / name for name in batch.files)):
            _sync(folder)
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._directory / f"{batch.number:020d}.json"
        temporary = path.with_suffix(".part")
        with temporary.open("w") as file:
            json.dump(asdict(batch), file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
        _sync(self._directory)
        self.batches.append(batch)

    def sweep(self) -> list[Path]:
        """Remove the files of batches that were not committed, or were replaced; returns what was removed."""
        known = {self.root / name for name in self._names()}
        removed = []
        for folder in (self.root / DATA, self.root / DEAD_LETTERS):
            for path in sorted(folder.rglob("*")):
                if path.is_file() and path not in known and _BATCH_FILE.fullmatch(path.name):
                    path.unlink()
                    removed.append(path)
        for leftover in self._directory.glob("*.part"):
            leftover.unlink()
            removed.append(leftover)
        return removed

    def _entry_paths(self) -> list[Path]:
        return sorted(path for path in self._directory.glob("*.json") if _ENTRY_NAME.fullmatch(path.name))


def _read_entry(path: Path) -> ArchivedBatch:
    try:
        fields: dict[str, Any] = json.loads(path.read_text())
        fields["ranges"] = [OffsetRange(**each) for each in fields["ranges"]]
        fields["replaces"] = tuple(fields.get("replaces", ()))
        return ArchivedBatch(**fields)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ManifestError(f"{path} is damaged: {error}") from error


def _sync_files(root: Path, paths: Iterable[Path]) -> list[Path]:
    """Sync each file; returns the folders between them and the root, deepest first."""
    folders: set[Path] = {root}
    for path in paths:
        _sync(path)
        folders.update(folder for folder in path.parents if folder.is_relative_to(root))
    return sorted(folders, key=lambda folder: len(folder.parts), reverse=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
