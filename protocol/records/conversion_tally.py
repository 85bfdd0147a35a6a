"""The counts of one conversion."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


class Tally:
    """A counter of records that changed their format, and of bytes that were in memory for it.

    As for Kafka's TemporaryMemoryBytes, these are the stored bytes and the bytes of the converted records before their
    compression, although they are never in memory all at once. Source: Kafka `RecordsUtil.downConvert`.
    """

    __slots__ = ("record_count", "temporary_bytes")

    def __init__(self) -> None:
        self.record_count = 0
        self.temporary_bytes = 0

    def counted(self, pieces: Iterable[memoryview]) -> Iterator[memoryview]:
        """Return the pieces, and count their bytes."""
        for piece in pieces:
            self.temporary_bytes += len(piece)
            yield piece
