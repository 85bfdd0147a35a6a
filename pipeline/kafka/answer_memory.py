"""Reused memory for large answers: fresh pages of the system cost more than the bytes written to them."""

from __future__ import annotations

LEAST_BYTES = 1 << 20
"""The size below which an answer gets memory of its own."""
BLOCK_STEP = 1 << 20
MOST_BLOCKS = 4
"""The blocks of a reader: one answer being read, others waiting, and one being received."""


class AnswerMemory:
    """The memory blocks of one connection. A block is in use for as long as views of the result of `take` exist."""

    def __init__(self) -> None:
        self._blocks: list[bytearray] = []

    def take(self, size_bytes: int) -> memoryview:
        """Return a view of `size_bytes` bytes with undefined contents."""
        if size_bytes < LEAST_BYTES:
            return memoryview(bytearray(size_bytes))
        free = [block for block in self._blocks if _is_free(block)]
        for block in free:
            if len(block) >= size_bytes:
                return memoryview(block)[:size_bytes]
        block = bytearray(-(-size_bytes // BLOCK_STEP) * BLOCK_STEP)
        if len(self._blocks) >= MOST_BLOCKS and free:
            # The free block is too small: it held a smaller answer.
            self._blocks = [each for each in self._blocks if each is not free[0]]
        if len(self._blocks) < MOST_BLOCKS:
            self._blocks.append(block)
        return memoryview(block)[:size_bytes]


def _is_free(block: bytearray) -> bool:
    """Return whether no views of the block exist: Python refuses to resize a bytearray with views."""
    try:
        block.append(0)
    except BufferError:
        return False
    block.pop()
    return True
