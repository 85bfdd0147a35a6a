"""The memory with which a thread converts the records of large answers: `BulkMemory`."""

from __future__ import annotations

from ...protocol.records.recompression_cy import Recompression


class BulkMemory:
    """The buffers of one thread, which the thread's answers use in turn."""

    def __init__(self, chunk_bytes: int) -> None:
        self.chunk_bytes = chunk_bytes
        self.stored = bytearray(chunk_bytes)
        # Small records grow when they are converted down, and two chunks are sent at once.
        self.out = bytearray(2 * chunk_bytes)
        self.recompression = Recompression()
        self.ahead_bytes = 2 * chunk_bytes
        """The bytes that an answer may convert before it sends some; twice the size of a message that is larger."""
