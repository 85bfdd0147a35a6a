"""Small files that are forced to the disk later than they are written: with the first records that depend on them."""

from __future__ import annotations

import os
from collections.abc import Callable

from .files import Files


class DeferredSync:
    """A record of whether the last contents of one file, which is replaced as a whole, are forced to the disk."""

    __slots__ = ("_files", "_parents", "_path", "is_synced")

    def __init__(self, files: Files, path: str, *, parents: int) -> None:
        """Keep the state of the file at ``path``; with it the names in ``parents`` directories above it are forced."""
        self._files = files
        self._path = path
        self._parents = parents
        self.is_synced = True

    def hold(self) -> Callable[[], None]:
        """Return a function that forces the file and its name to the disk in any thread; it raises OSError."""
        was_synced, self.is_synced = self.is_synced, True

        def sync() -> None:
            if was_synced:
                return
            try:
                file = self._files.open(self._path)
                try:
                    file.sync()
                finally:
                    file.close()
                directory = self._path
                for _ in range(self._parents):
                    directory = os.path.dirname(directory)
                    self._files.sync_directory(directory)
            except OSError:
                self.is_synced = False
                raise

        return sync
