"""The health of a log directory, from the disk faults of its files.

There are two states besides "healthy":

- *failed*, after an fsync that failed: the kernel may have dropped the pages that it could not write, and a later fsync
would succeed without them. The directory is not used until the next start has read it again. Kafka takes the
directory offline too (`LogDirFailureChannel`, KIP-112).
- *refusing writes*, after a write that the system refused (ENOSPC, EDQUOT, EIO, EMFILE): no byte of it is in the log,
so reads continue and appends are tried again. `probe` ends the state. Kafka takes the directory offline until the
next start.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable

from ...protocol.errors import BrokerError, ErrorCode
from .files import Files, ForwardedFiles, StoredFile

logger = logging.getLogger(__name__)

PROBE_BYTES = 1 << 20
"""The size of the probe: a directory accepts writes again when this many bytes can be written."""
PROBE_FILE = ".write-probe"
NO_FSYNC = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOENT, errno.EACCES})
"""Faults of opening a directory for an fsync, after which no fsync was tried."""
REFUSALS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Faults of a write that other writes to the directory would meet too."""
SHORTAGES = REFUSALS - {errno.EIO, errno.EROFS}
"""Faults that end when the missing resource becomes available."""


def ignore_change() -> None:
    """Ignore a change of a directory's health."""


class DirectoryHealth:
    """The health of one log directory, usable in any thread."""

    __slots__ = ("_on_change", "failure", "path", "refusal")

    def __init__(self, path: str, on_change: Callable[[], None] = ignore_change) -> None:
        """Create a healthy state; ``on_change`` is called after each change, in the thread of the fault."""
        self.path = path
        self._on_change = on_change
        self.failure: str | None = None
        """Fault for which the directory is offline until the next start, None if the directory is online."""
        self.refusal: str | None = None
        """Fault for which the directory refuses writes for now, None if the directory accepts writes."""

    def sync_failed(self, fault: OSError) -> None:
        """Set the directory offline after an fsync that failed."""
        if self.failure is None:
            self.failure = fault.strerror or str(fault)
            logger.error(
                "log directory %s has failed (fsync: %s): its partitions are offline until the broker is restarted",
                self.path,
                self.failure,
            )
            self._on_change()

    def write_refused(self, fault: OSError) -> None:
        """Set the state "refusing writes" after a refused write; a fault of a single file changes nothing."""
        if fault.errno in REFUSALS and self.refusal is None and self.failure is None:
            self.refusal = fault.strerror or str(fault)
            logger.error(
                "log directory %s refuses writes (%s): appends answer KAFKA_STORAGE_ERROR until there is room again",
                self.path,
                self.refusal,
            )
            self._on_change()

    def check(self) -> None:
        """Raise BrokerError KAFKA_STORAGE_ERROR if the directory has failed."""
        if self.failure is not None:
            message = f"The log dir {self.path} is offline after a failed fsync: {self.failure}"
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, message)

    def probe(self, files: Files) -> None:
        """Write and remove a file; if that succeeds, end the state "refusing writes"."""
        if self.refusal is None or self.failure is not None:
            return
        path = f"{self.path}/{PROBE_FILE}"
        try:
            files.replace(path, bytes(PROBE_BYTES), sync=False)
            files.remove(path)
        except OSError as fault:
            self.refusal = fault.strerror or str(fault)
            return
        logger.info("log directory %s accepts writes again", self.path)
        self.refusal = None
        self._on_change()


class WatchedFiles(ForwardedFiles):
    """`Files` that report each failed fsync to the health of its log directory."""

    def __init__(self, files: Files, health_of: Callable[[str], DirectoryHealth | None]) -> None:
        """Wrap files; ``health_of`` returns the health of a path's log directory, None for a path outside of all."""
        super().__init__(files)
        self._health_of = health_of

    def open(self, path: str, *, create: bool = False) -> WatchedFile:
        """Open a file as `Files.open` does."""
        return WatchedFile(self._files.open(path, create=create), path, self._sync_failed)

    def replace(self, path: str, data: bytes, *, sync: bool = True) -> None:
        """Replace a file as `Files.replace` does. Only EIO cannot come from a lack of room for the new file."""
        try:
            self._files.replace(path, data, sync=sync)
        except OSError as fault:
            if sync and fault.errno == errno.EIO:
                self._sync_failed(path, fault)
            raise

    def sync_directory(self, directory: str) -> None:
        """Sync a directory as `Files.sync_directory` does."""
        try:
            self._files.sync_directory(directory)
        except OSError as fault:
            if fault.errno not in NO_FSYNC:
                self._sync_failed(directory, fault)
            raise

    def _sync_failed(self, path: str, fault: OSError) -> None:
        health = self._health_of(path)
        if health is not None:
            health.sync_failed(fault)


class WatchedFile:
    """An open file of `WatchedFiles` that adds a step to `sync` only."""

    __slots__ = (
        "_path",
        "_sync",
        "_sync_failed",
        "close",
        "descriptor",
        "map",
        "map_table",
        "punch_hole",
        "read_at",
        "size",
        "truncate",
        "write_at",
    )

    def __init__(self, file: StoredFile, path: str, sync_failed: Callable[[str, OSError], None]) -> None:
        self._path = path
        self._sync = file.sync
        self._sync_failed = sync_failed
        self.descriptor = file.descriptor
        self.close = file.close
        self.map = file.map
        self.map_table = file.map_table
        self.punch_hole = file.punch_hole
        self.read_at = file.read_at
        self.size = file.size
        self.truncate = file.truncate
        self.write_at = file.write_at

    def sync(self) -> None:
        """Sync the file as `StoredFile.sync` does."""
        try:
            self._sync()
        except OSError as fault:
            self._sync_failed(self._path, fault)
            raise
