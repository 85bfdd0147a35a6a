"""The producer snapshots in one partition's directory."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ..disk import paths
from ..disk.files import Files
from .producer_snapshot import MalformedSnapshotError, ProducerSnapshot, format_snapshot, parse_snapshot

logger = logging.getLogger(__name__)


class SnapshotFiles:
    """The snapshots by offset; each has the state of the producers before the record at that offset."""

    __slots__ = ("_directory", "_files")

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory

    def offsets(self) -> list[int]:
        """Return the offsets that have a snapshot, ascending. Raises OSError."""
        found = map(paths.parse_offset_file, self._files.list(self._directory))
        return sorted(name.offset for name in found if name and name.kind == paths.SNAPSHOT and not name.state)

    def write(self, offset: int, producers: list[ProducerSnapshot]) -> None:
        """Write a snapshot without a sync: after a crash the state is computed from the log. Raises OSError."""
        self._files.replace(self._path(offset), format_snapshot(producers), sync=False)

    def write_last(self, offset: int, producers: list[ProducerSnapshot], kept: Iterable[int]) -> None:
        """Write the snapshot of a clean stop; remove older ones except those at the offsets `kept`. Raises OSError."""
        self.write(offset, producers)
        for stray in {*self.offsets()} - {*kept, offset}:
            self._files.remove(self._path(stray))

    def latest(self, lowest: int, highest: int) -> tuple[int, list[ProducerSnapshot]] | None:
        """Return the newest readable snapshot between these offsets (inclusive). Raises OSError.

        Unreadable snapshots are removed.
        """
        for offset in reversed(self.offsets()):
            if lowest <= offset <= highest:
                try:
                    return offset, parse_snapshot(self._files.read(self._path(offset)))
                except (MalformedSnapshotError, FileNotFoundError) as fault:
                    logger.warning("%s: %s: removed", self._path(offset), fault)
                    self._files.remove(self._path(offset))
        return None

    def exact(self, offset: int) -> list[ProducerSnapshot] | None:
        """Return the snapshot at `offset`, None if it is missing or unreadable. Raises OSError."""
        try:
            return parse_snapshot(self._files.read(self._path(offset)))
        except (MalformedSnapshotError, FileNotFoundError):
            return None

    def remove_outside(self, lowest: int, highest: int) -> None:
        """Remove snapshots below `lowest` or above `highest`. Raises OSError."""
        for offset in self.offsets():
            if not lowest <= offset <= highest:
                self._files.remove(self._path(offset))

    def _path(self, offset: int) -> str:
        return f"{self._directory}/{paths.offset_file(offset, paths.SNAPSHOT)}"
