"""A bounded number of open files, however many segments there are.

Segments and indexes open their file when they need it and tell the pool. When too many are open, the pool asks those
that have not been used since its last round to close their files (a clock, the cheap approximation of least recently
used).

Threads: the thread that made the pool may use its files freely, since only it closes them to make room. Any other
thread holds what it uses: `SharedFile.acquire`, then `release`.
"""

from __future__ import annotations

import resource
import threading
from typing import Protocol

from .files import Files, StoredFile

RESERVED_DESCRIPTORS = 512
"""The number of descriptors left to sockets; the pool uses at most half of the remaining ones."""


class FileUser(Protocol):
    """An owner that keeps a file open between uses."""

    recently_used: bool

    def release_file(self) -> None:
        """Close the file; it is opened again when needed."""


class SharedFile:
    """An open file with a count of holders, closed when its owner has closed it and the last holder has released it."""

    __slots__ = (
        "_file",
        "_holders",
        "_lock",
        "_unwanted",
        "descriptor",
        "map",
        "read_at",
        "size",
        "sync",
        "truncate",
        "write_at",
    )

    def __init__(self, file: StoredFile, lock: threading.RLock) -> None:
        self._file = file
        self._lock = lock
        self._holders = 0
        self._unwanted = False
        self.descriptor = file.descriptor
        self.read_at = file.read_at
        self.write_at = file.write_at
        self.map = file.map
        self.size = file.size
        self.sync = file.sync
        self.truncate = file.truncate

    @property
    def is_held(self) -> bool:
        """Return whether a slice or another thread is using the file."""
        return self._holders > 0

    def punch_hole(self, position: int, size_bytes: int) -> bool:
        """See `StoredFile.punch_hole`."""
        return self._file.punch_hole(position, size_bytes)

    def acquire(self) -> SharedFile:
        """Keep the file open until `release`."""
        with self._lock:
            self._holders += 1
        return self

    def release(self) -> None:
        """Undo one `acquire`."""
        with self._lock:
            self._holders -= 1
            if self._unwanted and not self._holders:
                self._file.close()

    def close(self) -> None:
        """Close the file, now or when the last holder releases it."""
        with self._lock:
            if self._unwanted:
                return
            self._unwanted = True
            if not self._holders:
                self._file.close()


class OpenFiles:
    """The pool of the files that the logs of one broker keep open, with a limit."""

    def __init__(self, files: Files, max_open: int | None = None) -> None:
        self.files = files
        self.max_open = max_open or default_max_open()
        self.lock = threading.RLock()
        self._users: dict[FileUser, None] = {}
        self._thread = threading.get_ident()

    def open(self, path: str, user: FileUser, *, create: bool = False) -> SharedFile:
        """Open a file for `user`, whose `release_file` may be called later. Raises OSError."""
        file = SharedFile(self.files.open(path, create=create), self.lock)
        self.register(user)
        return file

    def register(self, user: FileUser) -> None:
        """Count a user that has opened a file (or mapped one)."""
        with self.lock:
            self._users[user] = None
            # A user that is about to use its file does not have to close it, even if all others are busy.
            user.recently_used = True
            if len(self._users) > self.max_open and threading.get_ident() == self._thread:
                self._make_room()

    def forget(self, user: FileUser) -> None:
        """Remove a user that has closed its file itself."""
        with self.lock:
            self._users.pop(user, None)

    def __len__(self) -> int:
        return len(self._users)

    def _make_room(self) -> None:
        # At most one full round of second chances; then the newest user is last in line again.
        for _ in range(len(self._users)):
            if len(self._users) <= self.max_open:
                return
            user = self._oldest()
            if user.recently_used:
                user.recently_used = False
                self._users[user] = None
            else:
                user.release_file()
        while len(self._users) > self.max_open:
            self._oldest().release_file()

    def _oldest(self) -> FileUser:
        user = next(iter(self._users))
        del self._users[user]
        return user


def default_max_open() -> int:
    """Return half of the process's descriptors beyond the reserved ones, at least 64."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(64, (limit - RESERVED_DESCRIPTORS) // 2)
