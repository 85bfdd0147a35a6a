"""The operations that the pipeline needs of a store of files, beside the file systems of this machine.

A store must show a file whole or not at all, must be able to refuse the creation of a file that exists, and must list
every file that was written before. It needs no rename: object stores have none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, NamedTuple, Protocol

from ..errors import PipelineError


class StoreError(PipelineError, OSError):
    """A store did not do what was asked; `str()` names the file and the store's reason."""


class StoredFile(NamedTuple):
    """A file of a store, by its key, with its size in bytes."""

    key: str
    size: int


class Store(Protocol):
    """A store of files by keys, which are paths without a leading slash. A Store is a value that can be pickled.

    Every operation raises StoreError if the store refuses it or cannot be reached, and FileNotFoundError if it reads a
    file that does not exist.
    """

    @property
    def uri(self) -> str:
        """The URI before the keys, without a slash at its end."""

    def read(self, key: str) -> bytes:
        """Return the contents of a file."""

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """Return `length` bytes of a file from `start` on; the range is inside the file."""

    def size(self, key: str) -> int:
        """Return the size of a file in bytes."""

    def create(self, key: str, contents: bytes) -> None:
        """Write a file if there is none of that key; raise FileExistsError otherwise, also in a race with others.

        A file of these very contents may be this call's own, whose answer was lost: it is no error.
        """

    def replace(self, key: str, contents: bytes) -> None:
        """Write a file, or replace the existing one: readers find the old or the new contents."""

    def open_output(self, key: str) -> BinaryIO:
        """Open a file for writing, which appears when it is closed."""

    def move(self, source: str, target: str) -> None:
        """Move a file; the target appears whole. A move that was made before, perhaps in part, is completed.

        A store without an atomic rename copies and then removes: `source` and `target` may both exist for a moment.
        """

    def remove(self, key: str) -> None:
        """Remove a file if it exists."""

    def files(self, folder: str) -> Iterator[StoredFile]:
        """Yield the files below a folder, at any depth, in any order; none for a folder that does not exist."""
