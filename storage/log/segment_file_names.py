"""The names of a segment's files: the log, its index and its transaction index."""

from __future__ import annotations

from ..disk import paths
from ..disk.files import Files


class SegmentFileNames:
    """The paths of the files of one segment; `suffix` ends those of a segment outside of a log (`.cleaned`)."""

    __slots__ = ("index", "log", "transactions")

    def __init__(self, directory: str, base_offset: int, suffix: str) -> None:
        stem = f"{directory}/{base_offset:020d}"
        self.log = f"{stem}{paths.LOG}{suffix}"
        self.index = f"{stem}{paths.INDEX}{suffix}"
        self.transactions = f"{stem}{paths.TRANSACTION_INDEX}{suffix}"

    def remove(self, files: Files) -> None:
        """Remove the files. Raises OSError."""
        for path in (self.log, self.index, self.transactions):
            files.remove(path)

    def set_aside(self, files: Files) -> list[str]:
        """Rename the existing files to `.deleted`, as Kafka does; return their new names. Raises OSError."""
        found = [path for path in (self.log, self.index, self.transactions) if files.exists(path)]
        for path in found:
            files.rename(path, path + paths.DELETED)
        return [path + paths.DELETED for path in found]
