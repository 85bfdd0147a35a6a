"""The manifest of an archive: which batches it holds, which offsets those cover, and in which files their rows came.

Entries are numbered from 0 without holes. A batch takes two steps. When its files lie whole under `staged/`, its entry
is staged there too (`Manifest.stage`): from then on the batch will count, whatever ends the process. Then its rows are
put where the archive's rows are, which may be done again (`row_table.RowTable.publish`), and the entry moves to where
entries count (`Manifest.count`).

Now and then the writer sums all entries up in a checkpoint (`manifest_state`), by one rename, and removes the entries
that it covers; what a killed writer has not removed the next one does. So a manifest is a checkpoint and the entries
after it, or entries alone, as older versions wrote it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..errors import PipelineError
from .durable_files import PART, sync, sync_folders, write_json
from .manifest_entry import ArchivedBatch, OffsetRange
from .manifest_state import ManifestState

DATA = "data"
DEAD_LETTERS = "dead_letters"
STAGED = "staged"
_ENTRY_NAME = re.compile(r"(\d{20})\.json")
_CHECKPOINT_NAME = re.compile(r"checkpoint-(\d{20})\.json")

CHECKPOINT_ENTRIES = 128
"""So many entries after a checkpoint make the next one, in an archive of few files."""
CHECKPOINT_NAMES = 64
"""In one of many files: an entry for each so many files. A checkpoint has all their names, so that writing them costs
each entry about as much as so many names do, however old the archive is."""
LOADS = 5
"""How often a reader begins anew because a writer has just made a checkpoint."""


class ManifestError(PipelineError):
    """The manifest is damaged or does not fit what is asked; `str()` is one line that names file and reason."""


class Manifest:
    """The entries of one archive. One process at a time may write them (`writer_lock.WriterLock`)."""

    def __init__(self, root: Path, *, has_files: bool = True) -> None:
        """Read the manifest under `root`; an archive without one has no batches. Raises ManifestError.

        `has_files` False forgets names of files, for an archive whose tables know their files themselves.
        """
        self.root = root
        self.staging = root / STAGED
        """Where tasks write the files of the next batch, under the names that these will have below the root."""
        self._directory = root / "manifest"
        self._has_files = has_files
        self.state = ManifestState()
        self.batches: list[ArchivedBatch] = []
        """The entries that came after the checkpoint, in the order of their numbers."""
        self._load()
        self.pending = self._read_pending()
        """The batch that will count, but whose rows may not yet be where they belong."""

    @property
    def next_number(self) -> int:
        """The number of the next batch."""
        return self.state.next_number

    def positions(self) -> dict[tuple[str, int], int]:
        """By (topic, partition), the offset after the last archived one."""
        return {place: spans[-1][1] for place, spans in self.state.spans.items() if spans}

    def ranges(self) -> Iterator[OffsetRange]:
        """All archived offsets in order, in as few ranges as can be."""
        for place, spans in sorted(self.state.spans.items()):
            yield from (OffsetRange(*place, *span) for span in spans)

    def missing(self, wanted: OffsetRange) -> list[OffsetRange]:
        """The parts of `wanted` that no batch covers, in order."""
        parts = []
        at = wanted.from_offset
        for start, until in self.state.spans.get((wanted.topic, wanted.partition), ()):
            if start > at and at < wanted.until_offset:
                end = min(start, wanted.until_offset)
                parts.append(OffsetRange(wanted.topic, wanted.partition, at, end))
            at = max(at, until)
        if at < wanted.until_offset:
            parts.append(OffsetRange(wanted.topic, wanted.partition, at, wanted.until_offset))
        return parts

    def files(self) -> list[Path]:
        """Every data file that counts, in an archive whose rows are in Parquet files."""
        return [self.root / name for name in self.state.names if name.startswith(f"{DATA}/")]

    def check_topic_ids(self, topic_ids: dict[str, str]) -> None:
        """Raise ManifestError if a topic was deleted and made again since it was last archived."""
        for topic, known in self.state.topic_ids.items():
            if topic_ids.get(topic, known) != known:
                raise ManifestError(
                    f"topic {topic} has id {topic_ids[topic]} and had {known} when it was last archived: it was made "
                    "again, so its offsets mean other records; archive it under another root"
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
        self._take(batch)
        self.pending = None
        self._checkpoint_if_due()

    def sweep(self) -> list[Path]:
        """Remove what is staged for no batch, and half-written entries; returns the files that were removed.

        Call it when no batch is pending. What tasks of a run that ended early still write is left for the next time.
        """
        self._checkpoint_if_due()
        self._remove_covered()
        removed = [path for path in self.staging.rglob("*") if path.is_file()]
        shutil.rmtree(self.staging, ignore_errors=True)
        for leftover in self._directory.glob(f"*{PART}"):
            leftover.unlink()
            removed.append(leftover)
        return removed

    def _read_pending(self) -> ArchivedBatch | None:
        try:
            return _read_entry(self._staged_entry(self.next_number))
        except FileNotFoundError:
            return None

    def _staged_entry(self, number: int) -> Path:
        return self.staging / f"{number:020d}.json"

    # --- checkpoints ---

    def _load(self) -> None:
        """Read the last checkpoint and the entries after it, again if a writer has just put one in their place."""
        for tries_left in reversed(range(LOADS)):
            try:
                self._load_once()
            except (FileNotFoundError, _HoleError) as fault:
                if not tries_left:
                    raise ManifestError(str(fault)) from fault
            else:
                return

    def _load_once(self) -> None:
        checkpoints = self._numbered(_CHECKPOINT_NAME)
        self.batches = []
        self.state = ManifestState(has_files=self._has_files)
        if checkpoints:
            number = max(checkpoints)
            self.state = _read_checkpoint(checkpoints[number], number, has_files=self._has_files)
        entries = self._numbered(_ENTRY_NAME)
        numbers = sorted(number for number in entries if number >= self.next_number)
        for expected, number in enumerate(numbers, start=self.next_number):
            if number != expected:
                raise _HoleError(f"{entries[number]}: entry {expected} is missing")
        for number in numbers:
            batch = _read_entry(entries[number])
            if batch.number != number:
                raise ManifestError(f"{entries[number]} is damaged: it says that it is entry {batch.number}")
            self._take(batch)

    def _take(self, batch: ArchivedBatch) -> None:
        self.batches.append(batch)
        self.state.add(batch)

    def _checkpoint_if_due(self) -> None:
        if len(self.batches) < max(CHECKPOINT_ENTRIES, len(self.state.names) // CHECKPOINT_NAMES):
            return
        write_json(self._directory / f"checkpoint-{self.next_number:020d}.json", self.state.as_fields(), indent=None)
        self.batches = []
        self._remove_covered()

    def _remove_covered(self) -> None:
        """Remove what the last checkpoint covers, but for the last entry.

        By that one a version of this program that knows no checkpoints sees a manifest that begins in the middle, and
        refuses it, where it would else take the archive for an empty one.
        """
        checkpoints = self._numbered(_CHECKPOINT_NAME)
        last = max(checkpoints, default=0)
        for number, path in self._numbered(_ENTRY_NAME).items():
            if number < last - 1:
                path.unlink()
        for number, path in checkpoints.items():
            if number < last:
                path.unlink()

    def _numbered(self, pattern: re.Pattern[str]) -> dict[int, Path]:
        """The files of the manifest whose names are of that pattern, by their numbers."""
        try:
            names = os.listdir(self._directory)
        except FileNotFoundError:
            return {}
        return {int(found[1]): self._directory / name for name in names if (found := pattern.fullmatch(name))}


class _HoleError(Exception):
    """An entry is missing; or else the folder was listed while a writer removed what its checkpoint covers."""


def _read_checkpoint(path: Path, number: int, *, has_files: bool) -> ManifestState:
    try:
        state = ManifestState.from_fields(json.loads(path.read_text()), has_files=has_files)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ManifestError(f"{path} is damaged: {error}") from error
    if state.next_number != number:
        raise ManifestError(f"{path} is damaged: it says that the next entry is {state.next_number}")
    return state


def _read_entry(path: Path) -> ArchivedBatch:
    try:
        fields: dict[str, Any] = json.loads(path.read_text())
        fields["ranges"] = [OffsetRange(**each) for each in fields["ranges"]]
        fields["replaces"] = tuple(fields.get("replaces", ()))
        return ArchivedBatch(**fields)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ManifestError(f"{path} is damaged: {error}") from error
