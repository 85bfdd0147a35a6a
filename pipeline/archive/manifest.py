"""The manifest of an archive: which batches it holds, which offsets those cover, and in which files their rows came.

Entries are numbered from 0 without holes. A batch takes two steps. When its files lie whole under `staged/`, its entry
is staged there too (`Manifest.stage`): from then on the batch will count, whatever ends the process. Then its rows are
put where the archive's rows are, which may be done again (`row_table.RowTable.publish`), and the entry moves to where
entries count (`Manifest.count`).
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..errors import PipelineError
from .durable_files import PART, sync, sync_folders, write_json

DATA = "data"
DEAD_LETTERS = "dead_letters"
STAGED = "staged"
_ENTRY_NAME = re.compile(r"(\d{20})\.json")


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
    """One entry. `files` are those that tasks wrote, relative to the root; `topic_ids` are by topic, as text."""

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
        self.staging = root / STAGED
        """Where tasks write the files of the next batch, under the names that these will have below the root."""
        self._directory = root / "manifest"
        self.batches: list[ArchivedBatch] = []
        """All entries in the order of their numbers."""
        for number, path in enumerate(self._entry_paths()):
            batch = _read_entry(path)
            if batch.number != number:
                raise ManifestError(f"{path}: entry {number} is missing")
            self.batches.append(batch)
        staged = self._staged_entry(self.next_number)
        self.pending = _read_entry(staged) if staged.exists() else None
        """The batch that will count, but whose rows may not yet be where they belong."""

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
        """Every data file that counts, in an archive whose rows are in Parquet files."""
        return [self.root / name for name in self.names() if name.startswith(f"{DATA}/")]

    def names(self) -> dict[str, None]:
        """The files that count, data and dead letters, in the order of their entries."""
        names: dict[str, None] = {}
        for batch in self.batches:
            for replaced in batch.replaces:
                names.pop(replaced, None)
            names.update(dict.fromkeys(batch.files))
        return names

    def topic_ids(self) -> dict[str, str]:
        """Return the id of each topic when it was last archived, as text; topics without one are left out."""
        found: dict[str, str] = {}
        for batch in self.batches:
            found.update(batch.topic_ids)
        return found

    def check_topic_ids(self, topic_ids: dict[str, str]) -> None:
        """Raise ManifestError if a topic was deleted and made again since it was last archived."""
        for batch in self.batches:
            for topic, known in batch.topic_ids.items():
                if topic_ids.get(topic, known) != known:
                    raise ManifestError(
                        f"topic {topic} has id {topic_ids[topic]} and had {known} when batch {batch.number} was "
                        "archived: it was made again, so its offsets mean other records; archive it under another root"
                    )

    def stage(self, batch: ArchivedBatch) -> None:
        """Decide that `batch` will count; its staged files are synced first. Raises ManifestError, OSError."""
        if batch.number != self.next_number:
            raise ManifestError(f"batch {batch.number} is not the next one, {self.next_number}")
        staged = [self.staging / name for name in batch.files]
        for path in staged:
            sync(path)
        if staged:
            sync_folders(self.staging, staged)
        write_json(self._staged_entry(batch.number), asdict(batch))
        self.pending = batch

    def count(self, batch: ArchivedBatch) -> None:
        """Make the staged batch count; its rows are where they belong. Raises OSError."""
        path = self._directory / self._staged_entry(batch.number).name
        self._directory.mkdir(parents=True, exist_ok=True)
        self._staged_entry(batch.number).rename(path)
        sync(self._directory)
        self.batches.append(batch)
        self.pending = None

    def sweep(self) -> list[Path]:
        """Remove what is staged for no batch, and half-written entries; returns the files that were removed.

        Call it when no batch is pending. What tasks of a run that ended early still write is left for the next time.
        """
        removed = [path for path in self.staging.rglob("*") if path.is_file()]
        shutil.rmtree(self.staging, ignore_errors=True)
        for leftover in self._directory.glob(f"*{PART}"):
            leftover.unlink()
            removed.append(leftover)
        return removed

    def _staged_entry(self, number: int) -> Path:
        return self.staging / f"{number:020d}.json"

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
