"""The interface between the log and the disk: all file system operations of storage, so that tests can make them fail.

`OsFiles` uses the operating system. The tests have an implementation that keeps files in memory, loses unsynced data,
tears writes, and raises ENOSPC or EIO on demand.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
from contextlib import suppress
from functools import partial
from struct import Struct
from typing import Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

PUNCH_HOLE = 0x02 | 0x01
"""FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE of Linux's fallocate(2)."""


class MappedTable(Protocol):
    """A file of fixed size mapped for reading and writing in place."""

    def __len__(self) -> int:
        """Return the number of bytes mapped."""

    def unpack(self, layout: Struct, position: int) -> tuple[int, ...]:
        """Read one entry."""

    def pack(self, layout: Struct, position: int, *values: int | bytes) -> None:
        """Write one entry."""

    def part(self, position: int, end: int) -> bytes:
        """Return a copy of some bytes."""

    def sync(self) -> None:
        """Force the mapped bytes to the disk."""

    def close(self) -> None:
        """Unmap."""


class StoredFile(Protocol):
    """An open file. Every method may raise OSError."""

    @property
    def descriptor(self) -> int:
        """Return the descriptor for sendfile(2), -1 if the file is not the operating system's."""

    def write_at(self, data: Buffer, position: int, /) -> int:
        """Write at `position`; return the number of bytes written, perhaps not all."""

    def read_at(self, size_bytes: int, position: int, /) -> bytes:
        """Read up to `size_bytes` bytes, fewer only at the end of the file."""

    def map(self, position: int, size_bytes: int) -> memoryview:
        """Return a read-only view of bytes that exist."""

    def map_table(self, size_bytes: int) -> MappedTable:
        """Map the first `size_bytes`, which are allocated on the disk first so that no later write can lack space."""

    def size(self) -> int:
        """Return the file's size in bytes."""

    def truncate(self, size_bytes: int) -> None:
        """Cut or extend the file."""

    def punch_hole(self, position: int, size_bytes: int) -> bool:
        """Release the space, leaving zeros; return False if the file system does not support that."""

    def sync(self) -> None:
        """Force data and size to the disk."""

    def close(self) -> None:
        """Close the file."""


class Files(Protocol):
    """A file system. Paths are strings; every method may raise OSError."""

    def open(self, path: str, *, create: bool = False) -> StoredFile:
        """Open for reading and writing; raises FileNotFoundError unless `create`."""

    def read(self, path: str) -> bytes:
        """Read all of a small file."""

    def replace(self, path: str, data: bytes, *, sync: bool = True) -> None:
        """Replace the whole file by `data` atomically: a crash leaves the old or the new contents."""

    def list(self, directory: str) -> list[str]:
        """List the names in a directory, in no order."""

    def exists(self, path: str) -> bool:
        """Return whether a file or directory exists."""

    def is_directory(self, path: str) -> bool:
        """Return whether the path is a directory."""

    def size(self, path: str) -> int:
        """Return the file's size in bytes."""

    def modified_ms(self, path: str) -> int:
        """Return the time of the last write to the file."""

    def make_directory(self, path: str) -> None:
        """Create the directory and its parents; fine if it exists."""

    def rename(self, source: str, target: str) -> None:
        """Rename within one file system, replacing a target file."""

    def remove(self, path: str) -> None:
        """Delete a file; fine if it does not exist."""

    def remove_tree(self, directory: str) -> None:
        """Delete a directory with its contents; fine if it does not exist."""

    def sync_directory(self, directory: str) -> None:
        """Flush the names in a directory to the disk."""


class ForwardedFiles:
    """A `Files` that passes operations on to another one; a subclass adds `open`, `replace` and `sync_directory`."""

    def __init__(self, files: Files) -> None:
        self._files = files
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


class OsMappedTable:
    """`MappedTable` by mmap(2)."""

    __slots__ = ("memory",)

    def __init__(self, memory: mmap.mmap) -> None:
        self.memory = memory

    def __len__(self) -> int:
        return len(self.memory)

    def unpack(self, layout: Struct, position: int) -> tuple[int, ...]:
        return layout.unpack_from(self.memory, position)

    def pack(self, layout: Struct, position: int, *values: int | bytes) -> None:
        layout.pack_into(self.memory, position, *values)

    def part(self, position: int, end: int) -> bytes:
        return self.memory[position:end]

    def sync(self) -> None:
        self.memory.flush()

    def close(self) -> None:
        self.memory.close()


class OsFile:
    """`StoredFile` of the operating system."""

    __slots__ = ("descriptor", "write_at")

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        # A bound system call without a Python frame between, since appends are the hot path.
        self.write_at = partial(os.pwrite, descriptor)

    def read_at(self, size_bytes: int, position: int, /) -> bytes:
        return os.pread(self.descriptor, size_bytes, position)

    def map(self, position: int, size_bytes: int) -> memoryview:
        surplus = position % mmap.ALLOCATIONGRANULARITY
        memory = mmap.mmap(self.descriptor, size_bytes + surplus, access=mmap.ACCESS_READ, offset=position - surplus)
        return memoryview(memory)[surplus:]

    def map_table(self, size_bytes: int) -> MappedTable:
        # A write to a mapped hole on a full disk raises SIGBUS, which ends the process.
        os.posix_fallocate(self.descriptor, 0, size_bytes)
        return OsMappedTable(mmap.mmap(self.descriptor, size_bytes))

    def size(self) -> int:
        return os.fstat(self.descriptor).st_size

    def truncate(self, size_bytes: int) -> None:
        os.ftruncate(self.descriptor, size_bytes)

    def punch_hole(self, position: int, size_bytes: int) -> bool:
        libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(libc, "fallocate"):
            return False
        done = libc.fallocate(self.descriptor, PUNCH_HOLE, ctypes.c_int64(position), ctypes.c_int64(size_bytes))
        return bool(done == 0)

    def sync(self) -> None:
        try:
            os.fsync(self.descriptor)
        except OSError:
            # The kernel may mark pages as clean that never reached the disk. The next reader of the file, such as the
            # recovery of the next start, must read the contents of the disk.
            with suppress(OSError):
                os.posix_fadvise(self.descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            raise

    def close(self) -> None:
        os.close(self.descriptor)


class OsFiles:
    """`Files` of the operating system."""

    __slots__ = ()

    def open(self, path: str, *, create: bool = False) -> OsFile:
        return OsFile(os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o644))

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def replace(self, path: str, data: bytes, *, sync: bool = True) -> None:
        temporary = path + ".tmp"
        try:
            with open(temporary, "wb") as file:
                file.write(data)
                if sync:
                    file.flush()
                    os.fsync(file.fileno())
            os.replace(temporary, path)
        except OSError:
            # On a full disk an incomplete file would keep the space that is needed.
            self.remove(temporary)
            raise
        if sync:
            self.sync_directory(os.path.dirname(path))

    def list(self, directory: str) -> list[str]:
        return os.listdir(directory)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(path)

    def remove_tree(self, directory: str) -> None:
        with suppress(FileNotFoundError):
            shutil.rmtree(directory)

    def sync_directory(self, directory: str) -> None:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
