"""Reused memory for the columns of Arrow batches: fresh pages cost time, and an allocator keeps them long afterwards.

A column is given room for the largest result that its input may have, most of which is never written. Such memory is
mapped, so that only the written pages count, and it goes back to the system with its task.
"""

from __future__ import annotations

import mmap
from collections import defaultdict

LEAST_BYTES = 64 << 10
"""The size below which a column gets memory of its own: a mapping costs a system call and whole pages."""
MOST_BLOCKS = 2
"""The blocks of a column: one that is being filled, and one of the batch before, which its reader still has."""


class ColumnMemory:
    """The memory of the columns of one batch after another.

    A block is in use as long as views of it exist, such as the buffers of an Arrow array. The columns of a batch take
    their memory in the same order as those of the batch before, so that a column gets the block with the pages that
    it has written before.
    """

    def __init__(self) -> None:
        self._blocks: defaultdict[int, list[mmap.mmap]] = defaultdict(list)
        self._column = 0

    def begin_batch(self) -> None:
        """Begin with the first column of the next batch."""
        self._column = 0

    def take(self, size_bytes: int) -> memoryview:
        """Return a view of `size_bytes` bytes with undefined contents for the next column."""
        column, self._column = self._column, self._column + 1
        if size_bytes < LEAST_BYTES:
            return memoryview(bytearray(size_bytes))
        blocks = self._blocks[column]
        for block in blocks:
            if len(block) >= size_bytes and _is_free(block):
                return memoryview(block)[:size_bytes]
        # Of a power of two, since the next batch may be somewhat larger; pages that are not written cost nothing.
        block = mmap.mmap(-1, 1 << (size_bytes - 1).bit_length(), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        del blocks[: len(blocks) + 1 - MOST_BLOCKS]
        blocks.append(block)
        return memoryview(block)[:size_bytes]


def _is_free(block: mmap.mmap) -> bool:
    """Return whether no views of the block exist: Python refuses to resize a mapping that has views."""
    try:
        block.resize(len(block))
    except BufferError:
        return False
    return True
