"""Producer ids that no other producer has, and none ever had, whatever became of this process meanwhile.

Ids come in blocks, as in Kafka (`ProducerIdManager`): a block is written down before its first id is given out, so a
restart wastes what was left of one and repeats nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...storage.log_manager import LogManager

BLOCK_SIZE = 1000
LARGEST_BELIEVED_ID = 2**62
"""No broker gets so far; a client may write any id into a batch, and ids must not come to their end by that."""


def producer_ids_in(logs: LogManager) -> Iterable[int]:
    """Ids of the producers that logs know, which is all that a new producer of the same id could be mistaken for."""
    return (producer_id for log in logs.logs() for producer_id in log.producers.producers)


def first_id_after(seen: Iterable[int]) -> int:
    """Return the first id above all that were ``seen``, 0 if there is none.

    Ids that no broker can have given out do not count.
    """
    return max((producer_id for producer_id in seen if producer_id < LARGEST_BELIEVED_ID), default=-1) + 1


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
