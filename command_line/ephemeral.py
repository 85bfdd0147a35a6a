"""Temporary data directories of `gregor serve --ephemeral`, in memory where the system has room for that."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MEMORY = Path("/dev/shm")  # noqa: S108 (a tmpfs on Linux; each directory in it is made by mkdtemp)
LEAST_FREE_BYTES = 256 << 20
"""A tmpfs with less than this is not used; containers have 64 MB there by default."""
PREFIX = "gregor-ephemeral-"


@contextmanager
def ephemeral_directory() -> Iterator[Path]:
    """Yield a directory that is removed at the end.

    A process that is killed (SIGKILL) leaves its directory behind; the next call removes it, since the lock on the
    directory ended with that process. Raises OSError.
    """
    parent = parent_directory()
    remove_abandoned(parent)
    directory, lock = _locked_directory(parent)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os.close(lock)


def parent_directory() -> Path:
    """Return TMPDIR if it is set, else the tmpfs if it has room, else the system's directory for temporary files."""
    is_usable = "TMPDIR" not in os.environ and MEMORY.is_dir() and os.access(MEMORY, os.W_OK | os.X_OK)
    has_room = is_usable and shutil.disk_usage(MEMORY).free >= LEAST_FREE_BYTES
    return MEMORY if has_room else Path(tempfile.gettempdir())


def remove_abandoned(parent: Path) -> None:
    """Remove the directories of this user in ``parent`` that no process has locked."""
    for path in parent.glob(f"{PREFIX}*"):
        try:
            if path.stat(follow_symlinks=False).st_uid != os.getuid():
                continue
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        except BlockingIOError:
            continue
        finally:
            os.close(lock)


def _locked_directory(parent: Path) -> tuple[Path, int]:
    """Make a directory and lock it; made again if `remove_abandoned` of another process came between the two."""
    while True:
        directory = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        try:
            lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue
        fcntl.flock(lock, fcntl.LOCK_EX)
        if directory.exists():
            return directory, lock
        os.close(lock)
