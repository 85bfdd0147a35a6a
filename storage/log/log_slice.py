"""A range of one segment's bytes that has not been read yet, to be sent or converted."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from ...protocol.records.receipts import NO_RECEIPTS, Receipts

if TYPE_CHECKING:
    from ..disk.open_files import SharedFile
    from .segment import Segment


class LogSlice:
    """A range of `size_bytes` bytes from `position` of a segment file: whole batches, but the last may be incomplete.

    The file stays open and readable until the slice is released, even if the segment is deleted meanwhile. Release the
    slice with `release()` or use it as a context manager; a second release does nothing. An empty slice (`size_bytes`
    0) has no file.
    """

    __slots__ = ("_file", "end_offset", "magics", "position", "receipts", "segment", "size_bytes", "start_offset")

    def __init__(
        self,
        file: SharedFile | None,
        position: int,
        size_bytes: int,
        *,
        start_offset: int,
        end_offset: int | None = None,
        magics: int = 0,
        receipts: Receipts = NO_RECEIPTS,
        segment: Segment | None = None,
    ) -> None:
        self._file = file
        self.position = position
        self.size_bytes = size_bytes
        self.start_offset = start_offset
        """The requested offset; the first batch may begin before it."""
        self.end_offset = start_offset if end_offset is None else end_offset
        """All records of the slice have smaller offsets; the segment often has more records below this offset."""
        self.magics = magics
        """The record formats of the whole segment: bit m is set if the segment may contain a batch of magic m."""
        self.receipts = receipts
        """The receipt times of v0 messages by their position in the slice; empty unless the read asked for them."""
        self.segment = segment
        """The segment of the bytes; its index describes them until the next change of the log."""

    @property
    def descriptor(self) -> int:
        """Return the open file for sendfile(2) and pread(2). Raises ValueError on an empty or released slice."""
        return self._held().descriptor

    def cut(self, size_bytes: int) -> None:
        """Cut the slice to its first ``size_bytes``."""
        self.size_bytes = min(self.size_bytes, size_bytes)

    def read(self) -> bytes:
        """Return a copy of the slice's bytes."""
        return self._held().read_at(self.size_bytes, self.position) if self.size_bytes else b""

    def release(self) -> None:
        """Release the file."""
        file, self._file = self._file, None
        if file is not None:
            file.release()

    def _held(self) -> SharedFile:
        if self._file is None:
            raise ValueError("the slice holds no file: it is empty or has been released")
        return self._file

    def __enter__(self) -> LogSlice:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def __del__(self) -> None:
        # A handler that is cancelled between reading and sending must not leak a file descriptor.
        self.release()

    def __repr__(self) -> str:
        return f"<slice from offset {self.start_offset}: {self.size_bytes} bytes at {self.position}>"
