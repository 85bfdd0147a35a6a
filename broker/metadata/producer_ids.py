"""Producer ids that are unique for ever, also after a crash of this process.

Ids come in blocks, as in Kafka (`ProducerIdManager`): a block is recorded before its first id is used, so a restart
wastes the rest of a block and repeats no id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...storage.log_manager import LogManager

BLOCK_SIZE = 1000
LARGEST_BELIEVED_ID = 2**62
"""No broker allocates ids this large; a client may write any id into a batch, which must not exhaust the ids."""


def producer_ids_in(logs: LogManager) -> Iterable[int]:
    """Return the ids of the producers in the logs, with which a new producer must not be confused."""
    return (producer_id for log in logs.logs() for producer_id in log.producers.producers)


def first_id_after(seen: Iterable[int]) -> int:
    """Return the first id above all ``seen`` ids, 0 if there are none.

    Ids that no broker can have allocated do not count.
    """
    return max((producer_id for producer_id in seen if producer_id < LARGEST_BELIEVED_ID), default=-1) + 1


class ProducerIds:
    """A source of producer ids; `allocate` durably reserves a block of the given size and returns its first id."""

    def __init__(self, allocate: Callable[[int], int]) -> None:
        self._allocate = allocate
        self._next = 0
        self._end = 0

    def next(self) -> int:
        """Return a new id. Raises BrokerError if a block cannot be recorded."""
        if self._next == self._end:
            self._next = self._allocate(BLOCK_SIZE)
            self._end = self._next + BLOCK_SIZE
        self._next += 1
        return self._next - 1
