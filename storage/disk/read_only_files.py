"""A read-only file system, for tools that read files that a running broker may be using."""

from __future__ import annotations

import errno
import os
from struct import Struct

from .files import Buffer, MappedTable, OsFile, OsFiles


class ReadOnlyTable:
    """A `MappedTable` over a copy: the broker may trim the file, and a mapped page beyond its end raises SIGBUS."""

    __slots__ = ("_copy",)

    def __init__(self, copy: bytes) -> None:
        self._copy = copy

    def __len__(self) -> int:
        return len(self._copy)

    def unpack(self, layout: Struct, position: int) -> tuple[int, ...]:
        """Read one entry."""
        return layout.unpack_from(self._copy, position)

    def pack(self, layout: Struct, position: int, *values: int | bytes) -> None:
        """Refuse the write."""
        raise _refused("a table")

    def part(self, position: int, end: int) -> bytes:
        """Return a copy of some bytes."""
        return self._copy[position:end]

    def sync(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class ReadOnlyFile(OsFile):
    """An open file that refuses changes with OSError, mostly raised by the operating system."""

    __slots__ = ()

    def map_table(self, size_bytes: int) -> MappedTable:
        """Copy the first `size_bytes` of the file. Raises OSError."""
        return ReadOnlyTable(self.read_at(size_bytes, 0))


class ReadOnlyFiles(OsFiles):
    """`Files` that only reads; all other operations raise OSError EROFS."""

    __slots__ = ()

    def open(self, path: str, *, create: bool = False) -> OsFile:
        """Open for reading. Raises OSError."""
        if create:
            raise _refused(path)
        return ReadOnlyFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def replace(self, path: str, data: Buffer, *, sync: bool = True) -> None:
        """Refuse the write."""
        raise _refused(path)

    def make_directory(self, path: str) -> None:
        """Refuse the write."""
        raise _refused(path)

    def rename(self, source: str, target: str) -> None:
        """Refuse the write."""
        raise _refused(source)

    def remove(self, path: str) -> None:
        """Refuse the write."""
        raise _refused(path)

    def remove_tree(self, directory: str) -> None:
        """Refuse the write."""
        raise _refused(directory)


def _refused(path: str) -> OSError:
    return OSError(errno.EROFS, os.strerror(errno.EROFS), path)
