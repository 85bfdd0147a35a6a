"""Files with injected delays and errors: a `Files` that applies the rules before it writes, syncs and reads.

A delay blocks the thread of the operation. Appends run in the event loop's thread, so a slow disk delays every request,
as a really slow disk does here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from ...storage.disk import paths
from ...storage.disk.files import Buffer, Files, ForwardedFiles, MappedTable, StoredFile
from .rule import DiskOperation


class DiskPlace(NamedTuple):
    """A place of a file: its log directory and its partition."""

    directory: str
    """The log directory, absolute."""
    topic: str | None
    """Topic of the file, None for the log directory's own files."""
    partition: int | None


Strike: TypeAlias = Callable[[DiskOperation, DiskPlace], None]
"""Called before each operation; it may block, and raise OSError."""


class FaultyFiles(ForwardedFiles):
    """A `Files` whose operations rules may delay or fail."""

    def __init__(self, files: Files, strike: Strike) -> None:
        super().__init__(files)
        self._strike = strike

    def open(self, path: str, *, create: bool = False) -> FaultyFile:
        """Open a file as `Files.open` does; creating a file counts as an append."""
        place = place_of(path)
        if create:
            self._strike(DiskOperation.APPEND, place)
        return FaultyFile(self._files.open(path, create=create), place, self._strike)

    def replace(self, path: str, data: bytes, *, sync: bool = True) -> None:
        """Replace a file as `Files.replace` does."""
        place = place_of(path)
        self._strike(DiskOperation.APPEND, place)
        if sync:
            self._strike(DiskOperation.FSYNC, place)
        self._files.replace(path, data, sync=sync)

    def sync_directory(self, directory: str) -> None:
        """Sync a directory as `Files.sync_directory` does."""
        self._strike(DiskOperation.FSYNC, place_of(f"{directory}/"))
        self._files.sync_directory(directory)


class FaultyFile:
    """An open file of `FaultyFiles`."""

    __slots__ = ("_file", "_place", "_strike", "close", "descriptor", "map", "punch_hole", "size", "truncate")

    def __init__(self, file: StoredFile, place: DiskPlace, strike: Strike) -> None:
        self._file = file
        self._place = place
        self._strike = strike
        self.descriptor = file.descriptor
        self.map = file.map
        self.size = file.size
        self.truncate = file.truncate
        self.punch_hole = file.punch_hole
        self.close = file.close

    def write_at(self, data: Buffer, position: int, /) -> int:
        """Write as `StoredFile.write_at` does."""
        self._strike(DiskOperation.APPEND, self._place)
        return self._file.write_at(data, position)

    def read_at(self, size_bytes: int, position: int, /) -> bytes:
        """Read as `StoredFile.read_at` does."""
        self._strike(DiskOperation.READ, self._place)
        return self._file.read_at(size_bytes, position)

    def map_table(self, size_bytes: int) -> MappedTable:
        """Map a table as `StoredFile.map_table` does; allocating its space counts as an append."""
        self._strike(DiskOperation.APPEND, self._place)
        return self._file.map_table(size_bytes)

    def sync(self) -> None:
        """Sync the file as `StoredFile.sync` does."""
        self._strike(DiskOperation.FSYNC, self._place)
        self._file.sync()


def place_of(path: str) -> DiskPlace:
    """Return the place of a path, by the name of its directory."""
    parent = os.path.abspath(os.path.dirname(path))
    name = paths.parse_partition_directory(os.path.basename(parent))
    if name is None:
        return DiskPlace(parent, None, None)
    return DiskPlace(os.path.dirname(parent), name.topic, name.partition)
