"""A file or folder of a store, with the part of `pathlib.Path`'s interface that the pipeline uses."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import NamedTuple, Self

from .stores import Store


class RemoteStatus(NamedTuple):
    """The part of `os.stat_result` that a store knows."""

    st_size: int


@dataclass(frozen=True, slots=True)
class RemotePath:
    """A path in a store. `str()` is its URI, as Spark and other programs take it."""

    store: Store
    key: PurePosixPath

    def __str__(self) -> str:
        return f"{self.store.uri}/{self.key}" if self.key.parts else self.store.uri

    def __truediv__(self, name: str | PurePosixPath) -> Self:
        return type(self)(self.store, self.key / name)

    def __lt__(self, other: RemotePath) -> bool:
        return str(self) < str(other)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.key.name

    @property
    def parent(self) -> Self:
        """The folder of this path."""
        return type(self)(self.store, self.key.parent)

    @property
    def suffix(self) -> str:
        """The end of the name from its last dot on."""
        return self.key.suffix

    def with_name(self, name: str) -> Self:
        """Return the path of another file in the same folder."""
        return type(self)(self.store, self.key.with_name(name))

    def absolute(self) -> Self:
        """Return this path: a path in a store is absolute."""
        return self

    def relative_to(self, folder: RemotePath) -> PurePosixPath:
        """Return the path below that folder. Raises ValueError if it is not below."""
        return self.key.relative_to(folder.key)

    def exists(self) -> bool:
        """Return whether there is such a file. Raises StoreError."""
        try:
            self.store.size(str(self.key))
        except FileNotFoundError:
            return False
        return True

    def is_file(self) -> bool:
        """Return whether there is such a file. Raises StoreError."""
        return self.exists()

    def is_dir(self) -> bool:
        """Return whether there are files below this path. Raises StoreError."""
        return next(self.store.files(str(self.key)), None) is not None

    def stat(self) -> RemoteStatus:
        """Return the size of the file. Raises FileNotFoundError, StoreError."""
        return RemoteStatus(self.store.size(str(self.key)))

    def read_bytes(self) -> bytes:
        """Return the contents of the file. Raises FileNotFoundError, StoreError."""
        return self.store.read(str(self.key))

    def read_text(self) -> str:
        """Return the contents of the file as UTF-8 text. Raises FileNotFoundError, StoreError, UnicodeDecodeError."""
        return self.read_bytes().decode()

    def unlink(self, *, missing_ok: bool = True) -> None:
        """Remove the file, if it exists. Raises StoreError."""
        self.store.remove(str(self.key))

    def files(self) -> Iterator[Self]:
        """Yield the files below this path, at any depth. Raises StoreError."""
        yield from (self.store_path(found.key) for found in self.store.files(str(self.key)))

    def store_path(self, key: str) -> Self:
        """Return the path of another key of the same store."""
        return type(self)(self.store, PurePosixPath(key))

    def open_input(self) -> io.RawIOBase:
        """Open the file for reading in ranges. Raises FileNotFoundError, StoreError."""
        return RangeReader(self.store, str(self.key))


class RangeReader(io.RawIOBase):
    """A file of a store, open for reading: each read is a request for that range, so the reader should read ahead."""

    def __init__(self, store: Store, key: str) -> None:
        """Look up the file's size. Raises FileNotFoundError, StoreError."""
        super().__init__()
        self._store = store
        self._key = key
        self._size = store.size(key)
        self._position = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position of the next read."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position of the next read, as any file does."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        """Return the next bytes, fewer at the end of the file. Raises FileNotFoundError, StoreError."""
        left = max(0, self._size - self._position)
        length = left if size is None or size < 0 else min(size, left)
        if not length:
            return b""
        found = self._store.read_range(self._key, self._position, length)
        self._position += len(found)
        return found
