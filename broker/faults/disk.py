"""Files that are slow or fail: a `Files` around the real one that asks the rules before it writes, syncs and reads.

A delay holds up the thread that does the work. Appends are made in the event loop's thread, so a slow disk makes
everybody wait, as a really slow one does here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from ...storage.disk import paths
from ...storage.disk.files import Buffer, Files, MappedTable, StoredFile
from .rule import DiskOperation


class DiskPlace(NamedTuple):
    """Whose file it is."""

    directory: str
    """The log directory, absolute."""
    topic: str | None
    """None for the log directory's own files."""
    partition: int | None


Strike: TypeAlias = Callable[[DiskOperation, DiskPlace], None]
"""Called before each operation; it may take its time, and raise OSError."""


class FaultyFiles:
    """`Files` that the rules may strike; the rest goes straight through."""

    def __init__(self, files: Files, strike: Strike) -> None:
        self._files = files
        self._strike = strike
        self.read = files.read
        self.list = files.list
        self.exists = files.exists
        self.is_directory = files.is_directory
        self.size = files.size
        self.modified_ms = files.modified_ms
        self.make_directory = files.make_directory
        self.rename = files.rename
        self.remove = files.remove
        self.remove_tree = files.remove_tree

    def open(self, path: str, *, create: bool = False) -> FaultyFile:
        """As `Files.open`; a file that is to be created takes space."""
        place = place_of(path)
        if create:
            self._strike(DiskOperation.APPEND, place)
        return FaultyFile(self._files.open(path, create=create), place, self._strike)

    def replace(self, path: str, data: bytes, *, sync: bool = True) -> None:
        """As `Files.replace`."""
        place = place_of(path)
        self._strike(DiskOperation.APPEND, place)
        if sync:
            self._strike(DiskOperation.FSYNC, place)
        self._files.replace(path, data, sync=sync)

    def sync_directory(self, directory: str) -> None:
        """As `Files.sync_directory`."""
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
        """As `StoredFile.write_at`."""
        self._strike(DiskOperation.APPEND, self._place)
        return self._file.write_at(data, position)

    def read_at(self, size_bytes: int, position: int, /) -> bytes:
        """As `StoredFile.read_at`."""
        self._strike(DiskOperation.READ, self._place)
        return self._file.read_at(size_bytes, position)

    def map_table(self, size_bytes: int) -> MappedTable:
        """As `StoredFile.map_table`: the table's space is allocated."""
        self._strike(DiskOperation.APPEND, self._place)
        return self._file.map_table(size_bytes)

    def sync(self) -> None:
        """As `StoredFile.sync`."""
        self._strike(DiskOperation.FSYNC, self._place)
        self._file.sync()


def place_of(path: str) -> DiskPlace:
    """Whose file the path is, by its directory's name."""
    parent = os.path.abspath(os.path.dirname(path))
    name = paths.parse_partition_directory(os.path.basename(parent))
    if name is None:
        return DiskPlace(parent, None, None)
    return DiskPlace(os.path.dirname(parent), name.topic, name.partition)
