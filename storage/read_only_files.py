"""A file system in which nothing can change, for tools that look at what a running broker may be using."""

from __future__ import annotations

import errno
import mmap
import os

from .files import Buffer, OsFile, OsFiles, OsMappedTable


class ReadOnlyFile(OsFile):
    """An open file whose every writing method raises OSError EBADF, by the operating system or here."""

    __slots__ = ()

    def map_table(self, size_bytes: int) -> OsMappedTable:
        """Map bytes that exist; `pack` raises TypeError."""
        return OsMappedTable(mmap.mmap(self.descriptor, size_bytes, access=mmap.ACCESS_READ))


class ReadOnlyFiles(OsFiles):
    """`Files` that only reads; all else raises OSError EROFS."""

    __slots__ = ()

    def open(self, path: str, *, create: bool = False) -> OsFile:
        """Open for reading. Raises OSError."""
        if create:
            raise _refused(path)
        return ReadOnlyFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def replace(self, path: str, data: Buffer, *, sync: bool = True) -> None:
        """Refused."""
        raise _refused(path)

    def make_directory(self, path: str) -> None:
        """Refused."""
        raise _refused(path)

    def rename(self, source: str, target: str) -> None:
        """Refused."""
        raise _refused(source)

    def remove(self, path: str) -> None:
        """Refused."""
        raise _refused(path)

    def remove_tree(self, directory: str) -> None:
        """Refused."""
        raise _refused(directory)


def _refused(path: str) -> OSError:
    return OSError(errno.EROFS, os.strerror(errno.EROFS), path)
