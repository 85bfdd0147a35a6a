"""Whether a log directory may be written and believed: its files are watched for faults of the disk.

There are two states beside "healthy":

- *failed*, after an fsync that failed: the kernel may have dropped the pages that it could not write, and a later fsync
  would succeed without them. Nothing in the directory is trusted until a start has read it again. Kafka takes the
  directory offline too (`LogDirFailureChannel`, KIP-112).
- *refusing writes*, after a write that the system refused (ENOSPC, EDQUOT, EIO, EMFILE): nothing of it is in the log,
  so reads go on and appends are tried again. `probe` ends the state. Kafka takes the directory offline until the next
  start.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable

from ...protocol.errors import BrokerError, ErrorCode
from .files import Files, StoredFile

logger = logging.getLogger(__name__)

PROBE_BYTES = 1 << 20
"""A directory takes writes again when so many bytes can be written to it."""
PROBE_FILE = ".write-probe"
NO_FSYNC = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOENT, errno.EACCES})
"""Faults of opening a directory that is to be forced to the disk, after which no fsync was tried."""
REFUSALS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Faults of a write that any other write to the directory may meet too."""
SHORTAGES = REFUSALS - {errno.EIO, errno.EROFS}
"""Those that pass when somebody frees what is short."""


def ignore_change() -> None:
    """Do nothing about a change of a directory's health."""


class DirectoryHealth:
    """The health of one log directory; all of it may be used in any thread."""

    __slots__ = ("_on_change", "failure", "path", "refusal")

    def __init__(self, path: str, on_change: Callable[[], None] = ignore_change) -> None:
        """Create a healthy state; ``on_change`` is called after each change, in the thread that met the fault."""
        self.path = path
        self._on_change = on_change
        self.failure: str | None = None
        """Why the directory is offline until the next start, None if it is not."""
        self.refusal: str | None = None
        """Why the directory refuses writes for now, None if it does not."""

    def sync_failed(self, fault: OSError) -> None:
        """Set the directory offline after an fsync that failed."""
        if self.failure is None:
            self.failure = fault.strerror or str(fault)
            logger.error(
                "log directory %s has failed (fsync: %s): its partitions are offline until the broker is started again",
                self.path,
                self.failure,
            )
            self._on_change()

    def write_refused(self, fault: OSError) -> None:
        """Note a write that was refused and left nothing; a fault that concerns one file only changes no state."""
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
        """Write and remove a file; if that works the directory does not refuse writes any more."""
        if self.refusal is None or self.failure is not None:
            return
        path = f"{self.path}/{PROBE_FILE}"
        try:
            files.replace(path, bytes(PROBE_BYTES), sync=False)
            files.remove(path)
        except OSError as fault:
            self.refusal = fault.strerror or str(fault)
            return
        logger.info("log directory %s takes writes again", self.path)
        self.refusal = None
        self._on_change()


class WatchedFiles:
    """`Files` that tell the health of its log directory of every fsync that fails."""

    def __init__(self, files: Files, health_of: Callable[[str], DirectoryHealth | None]) -> None:
        """Wrap files; ``health_of`` returns the health of a path's log directory, None for a path outside of all."""
        self._files = files
        self._health_of = health_of
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
    """An open file of `WatchedFiles`; only its `sync` costs more than the file's own."""

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
