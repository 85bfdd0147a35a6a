"""Memory for large answers that is used again: pages that the system has to provide anew cost more than their bytes."""

from __future__ import annotations

LEAST_BYTES = 1 << 20
"""Smaller answers get memory of their own."""
BLOCK_STEP = 1 << 20
MOST_BLOCKS = 4
"""For a reader who looks at one answer, has others waiting, and one on its way."""


class AnswerMemory:
    """Blocks of one connection. What `take` gives belongs to who took it for as long as there are views of it."""

    def __init__(self) -> None:
        self._blocks: list[bytearray] = []

    def take(self, size_bytes: int) -> memoryview:
        """So many bytes with anything in them."""
        if size_bytes < LEAST_BYTES:
            return memoryview(bytearray(size_bytes))
        free = [block for block in self._blocks if _is_free(block)]
        for block in free:
            if len(block) >= size_bytes:
                return memoryview(block)[:size_bytes]
        block = bytearray(-(-size_bytes // BLOCK_STEP) * BLOCK_STEP)
        if len(self._blocks) >= MOST_BLOCKS and free:
            # They were of smaller answers.
            self._blocks = [each for each in self._blocks if each is not free[0]]
        if len(self._blocks) < MOST_BLOCKS:
            self._blocks.append(block)
        return memoryview(block)[:size_bytes]


def _is_free(block: bytearray) -> bool:
    """Whether there are no views of it: with any, Python refuses to change its size."""
    try:
        block.append(0)
    except BufferError:
        return False
    block.pop()
    return True
