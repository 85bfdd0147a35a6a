"""One writer per archive: a lock that the kernel releases when its process ends, or a lease in a store."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from ..filesystems.locations import Location
from .manifest import ManifestError

LOCK_NAME = "archive.lock"


class ArchiveLock(Protocol):
    """A context manager that holds an archive for writing. Raises ManifestError on entry if another process has it."""

    epoch: int
    """The number of the lease, which grows with each holder; 0 for a lock that the kernel holds."""
    follows_a_crash: bool
    """Whether the holder before may still write: it did not release the lease."""

    def confirm(self) -> None:
        """Raise ManifestError if the lease was lost, so that another process writes the archive now."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


def lock_for(root: Location, say: Callable[[str], None]) -> ArchiveLock:
    """Return the lock of the archive under `root`; `say` gets a line for the user if the lock must be waited for."""
    if isinstance(root, Path):
        return WriterLock(root)
    from .store_lease import StoreLease

    return StoreLease(root, say)


class WriterLock:
    """A context manager that holds `ROOT/archive.lock` on this machine, see ArchiveLock."""

    epoch = 0
    follows_a_crash = False

    def __init__(self, root: Path) -> None:
        self._path = root / LOCK_NAME
        self._descriptor = -1

    def confirm(self) -> None:
        """Do nothing: the kernel holds the lock as long as the process lives."""

    def __enter__(self) -> Self:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._descriptor, 32, 0).decode(errors="replace").strip()
            os.close(self._descriptor)
            raise ManifestError(f"{self._path} is held by process {holder}: one writer at a time") from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.close(self._descriptor)
