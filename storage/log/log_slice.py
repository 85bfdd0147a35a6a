"""A stretch of one segment's bytes, handed out for sending or conversion without being read."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from ...protocol.records.receipts import NO_RECEIPTS, Receipts

if TYPE_CHECKING:
    from ..disk.open_files import SharedFile
    from .segment import Segment


class LogSlice:
    """`size_bytes` bytes from `position` of a segment file: whole batches, but the last may be cut short.

    The file stays open and readable while the slice is held, even if the segment is deleted meanwhile. Release it once,
    by `release()` or as a context manager; releasing again does nothing. An empty slice (`size_bytes` 0) holds nothing.
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
        """The offset that was asked for; the first batch may begin before it."""
        self.end_offset = start_offset if end_offset is None else end_offset
        """No record of the slice has this offset or a larger one; often there are more before it, in that segment."""
        self.magics = magics
        """Formats present anywhere in that segment: bit m is set if a batch of magic m may be there."""
        self.receipts = receipts
        """When its v0 messages came, by their position in the slice; nothing unless readers are to be told."""
        self.segment = segment
        """Where the bytes are from; its index speaks of them until the log is changed the next time."""

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
        """Let go of the file."""
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
        # A handler that was cancelled between reading and sending must not leak a descriptor.
        self.release()

    def __repr__(self) -> str:
        return f"<slice from offset {self.start_offset}: {self.size_bytes} bytes at {self.position}>"
