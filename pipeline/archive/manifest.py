"""The manifest of an archive: its batches, their offsets, and the files in which their rows were written.

Entries are numbered from 0 without gaps. A batch is committed in two steps. When its files are complete under
`staged/`, its entry is staged there too (`Manifest.stage`): from then on the batch will become valid, whatever ends
the process. Then its rows are moved to the archive's table, which may be repeated (`row_table.RowTable.publish`),
and the entry is moved to the valid entries (`Manifest.count`).

At intervals the writer sums all entries up in a checkpoint (`manifest_state`), by one rename, and removes the
entries that it covers; the next writer removes those that a killed writer has left. So a manifest is a checkpoint
and the entries after it, or entries alone, as older versions wrote it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from ...protocol.topic_partition import AnyTopicPartition
from ..errors import PipelineError
from ..filesystems.files import (
    PART,
    create_json,
    files_below,
    make_durable,
    move,
    names_in,
    remove_below,
    sync,
    write_json,
)
from ..filesystems.locations import Location, name_below
from .manifest_entry import ArchivedBatch, OffsetRange
from .manifest_state import ManifestState

DATA = "data"
DEAD_LETTERS = "dead_letters"
STAGED = "staged"
_ENTRY_NAME = re.compile(r"(\d{20})\.json")
_CHECKPOINT_NAME = re.compile(r"checkpoint-(\d{20})\.json")

CHECKPOINT_ENTRIES = 128
"""The number of entries between two checkpoints, in an archive of few files."""
CHECKPOINT_NAMES = 64
"""The number of files per entry between two checkpoints, in an archive of many files.

A checkpoint has all names of files, so that writing checkpoints costs each entry about as much as this number of names
does, however old the archive is.
"""
LOADS = 5
"""The number of attempts of a reader when a writer makes a checkpoint at the same time."""


class ManifestError(PipelineError):
    """The manifest is damaged or does not fit the request; `str()` is one line that names file and reason."""


class Manifest:
    """The entries of one archive. One process at a time may write them (`writer_lock.WriterLock`)."""

    def __init__(self, root: Location, *, has_files: bool = True, epoch: int = 0) -> None:
        """Read the manifest under `root`; an archive without one has no batches. Raises ManifestError.

        With `has_files` False the names of files are dropped, for an archive whose tables list their files
        themselves. `epoch` is the number of the writer's lease in a store.
        """
        self.root = root
        self.staging = root / STAGED / f"{epoch:020d}" if epoch else root / STAGED
        """The directory where tasks write the files of the next batch, under their later names below the root.

        In a store a writer that has lost its lease may still write, so that each lease has a directory of its own.
        """
        self._directory = root / "manifest"
        self._has_files = has_files
        self.state = ManifestState()
        self.batches: list[ArchivedBatch] = []
        """The entries after the checkpoint, in the order of their numbers."""
        self._load()
        self.pending = self._read_pending()
        """The staged batch that will become valid, but whose rows may not be in the table yet."""

    @property
    def next_number(self) -> int:
        """The number of the next batch."""
        return self.state.next_number

    def positions(self) -> dict[AnyTopicPartition, int]:
        """Return the offset after the last archived one, by (topic, partition)."""
        return {place: spans[-1][1] for place, spans in self.state.spans.items() if spans}

    def ranges(self) -> Iterator[OffsetRange]:
        """Yield all archived offsets in order, in as few ranges as possible."""
        for place, spans in sorted(self.state.spans.items()):
            yield from (OffsetRange(*place, *span) for span in spans)

    def missing(self, wanted: OffsetRange) -> list[OffsetRange]:
        """Return the parts of `wanted` that no batch covers, in order."""
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

    def files(self, folder: str = DATA) -> list[Location]:
        """Return every valid file of data, or of another folder, in an archive whose rows are in Parquet files."""
        return [self.root / name for name in self.state.names if name.startswith(f"{folder}/")]

    def check_topic_ids(self, topic_ids: dict[str, str]) -> None:
        """Raise ManifestError if a topic was deleted and created again since it was last archived."""
        for topic, known in self.state.topic_ids.items():
            if topic_ids.get(topic, known) != known:
                raise ManifestError(
                    f"topic {topic} has id {topic_ids[topic]} and had {known} when it was last archived: it was made "
                    "again, so its offsets mean other records; archive it under another root"
                )

    def stage(self, batch: ArchivedBatch) -> None:
        """Stage the entry of `batch`, which makes its commit final; its staged files are synced first.

        Raises ManifestError, OSError; FileExistsError if another writer of a store has staged the batch of this number.
        """
        if batch.number != self.next_number:
            raise ManifestError(f"batch {batch.number} is not the next one, {self.next_number}")
        staged = [self.staging / name for name in batch.files]
        if staged:
            make_durable(self.staging, staged)
        batch = replace(batch, staged_in=name_below(self.staging, self.root))
        create_json(self._staged_entry(batch.number), _entry_fields(batch))
        self.pending = batch

    def count(self, batch: ArchivedBatch) -> None:
        """Make the staged batch valid after its rows are in the table. Raises ManifestError, OSError."""
        staged = self._staged_entry(batch.number)
        try:
            move(staged, self._directory / staged.name)
        except FileNotFoundError as fault:
            raise ManifestError(f"{fault}: another writer has taken the archive over") from fault
        sync(self._directory)
        self._take(batch)
        self.pending = None
        self._checkpoint_if_due()

    def sweep(self) -> list[Location]:
        """Remove staged files without a batch, and incomplete entries; return the removed files.

        The caller ensures that no batch is pending. Files that tasks of an ended run still write are removed by the
        next call.
        """
        self._checkpoint_if_due()
        self._remove_covered()
        removed = self._remove_staged()
        for name in names_in(self._directory):
            if name.endswith(PART):
                (self._directory / name).unlink(missing_ok=True)
                removed.append(self._directory / name)
        return removed

    def _remove_staged(self) -> list[Location]:
        """Remove the staged files of this writer and of those before it; return them."""
        staged = self.root / STAGED
        if self.staging == staged:
            return remove_below(staged)
        removed = []
        for path in files_below(staged):
            first = name_below(path, staged).partition("/")[0]
            entry = _ENTRY_NAME.fullmatch(first)
            if int(entry[1]) < self.next_number if entry else first <= self.staging.name:
                path.unlink(missing_ok=True)
                removed.append(path)
        return removed

    def _read_pending(self) -> ArchivedBatch | None:
        try:
            return _read_entry(self._staged_entry(self.next_number))
        except FileNotFoundError:
            return None

    def _staged_entry(self, number: int) -> Location:
        return self.root / STAGED / f"{number:020d}.json"

    # --- checkpoints ---

    def _load(self) -> None:
        """Read the last checkpoint and the entries after it; read again if a writer replaces entries meanwhile."""
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
                raise ManifestError(f"{entries[number]} is damaged: it has the number {batch.number}")
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
        """Remove the entries that the last checkpoint covers, except for the last one.

        With that entry a version of this program without checkpoints sees a manifest that begins in the middle, and
        refuses it; otherwise that version would see an empty archive.
        """
        checkpoints = self._numbered(_CHECKPOINT_NAME)
        last = max(checkpoints, default=0)
        for number, path in self._numbered(_ENTRY_NAME).items():
            if number < last - 1:
                path.unlink(missing_ok=True)
        for number, path in checkpoints.items():
            if number < last:
                path.unlink(missing_ok=True)

    def _numbered(self, pattern: re.Pattern[str]) -> dict[int, Location]:
        """Return the files of the manifest whose names match the pattern, by their numbers."""
        names = names_in(self._directory)
        return {int(found[1]): self._directory / name for name in names if (found := pattern.fullmatch(name))}


class _HoleError(Exception):
    """A missing entry, or a folder that was listed while a writer removed the entries of its checkpoint."""


def _entry_fields(batch: ArchivedBatch) -> dict[str, Any]:
    fields = asdict(batch)
    if batch.staged_in == STAGED:
        # Versions that know archives of this machine alone read the entry without this field.
        del fields["staged_in"]
    if not batch.retried:
        del fields["retried"]
    return fields


def _read_checkpoint(path: Location, number: int, *, has_files: bool) -> ManifestState:
    try:
        state = ManifestState.from_fields(json.loads(path.read_text()), has_files=has_files)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ManifestError(f"{path} is damaged: {error}") from error
    if state.next_number != number:
        raise ManifestError(f"{path} is damaged: its next entry has the number {state.next_number}")
    return state


def _read_entry(path: Location) -> ArchivedBatch:
    try:
        fields: dict[str, Any] = json.loads(path.read_text())
        fields["ranges"] = [OffsetRange(**each) for each in fields["ranges"]]
        fields["replaces"] = tuple(fields.get("replaces", ()))
        return ArchivedBatch(**fields)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ManifestError(f"{path} is damaged: {error}") from error
