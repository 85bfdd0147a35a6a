"""Producer ids that no other producer has, and none ever had, whatever became of this process meanwhile.

Ids come in blocks, as in Kafka (`ProducerIdManager`): a block is written down before its first id is given out, so a
restart wastes what was left of one and repeats nothing.
"""

from __future__ import annotations

from collections.abc import Callable

BLOCK_SIZE = 1000


class ProducerIds:
    """Gives out producer ids; `allocate` durably reserves a block of so many and returns its first id."""

    def __init__(self, allocate: Callable[[int], int]) -> None:
        self._allocate = allocate
        self._next = 0
        self._end = 0

    def next(self) -> int:
        """A fresh id. Raises BrokerError if a block cannot be written down."""
        if self._next == self._end:
            self._next = self._allocate(BLOCK_SIZE)
            self._end = self._next + BLOCK_SIZE
        self._next += 1
        return self._next - 1
