"""The batches of aborted transactions, which read_committed leaves out."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from .batches import BatchView, iter_batches, iter_records
from .control import ControlType, control_type


class AbortedFilter:
    """A filter of batches of aborted transactions, for batches in order (Kafka's CompletedFetch)."""

    def __init__(self, transactions: Sequence[tuple[int, int]]) -> None:
        self._coming = deque(transactions)
        self._open: set[int] = set()

    def hides(self, batch: BatchView) -> bool:
        """Return whether the batch was written in a transaction that was aborted later."""
        self._open_up_to(batch)
        return batch.is_transactional and batch.producer_id in self._open

    def pass_marker(self, batch: BatchView) -> None:
        """Note the end of a transaction."""
        # A fetch may begin with the marker itself: then the transaction has ended before any batch of it was passed.
        self._open_up_to(batch)
        if control_type(next(iter_records(batch)).key) is ControlType.ABORT:
            self._open.discard(batch.producer_id)

    def _open_up_to(self, batch: BatchView) -> None:
        while self._coming and self._coming[0][0] <= batch.last_offset:
            self._open.add(self._coming.popleft()[1])


def without_aborted(batches: memoryview, transactions: Sequence[tuple[int, int]]) -> memoryview:
    """Return batches of one partition without those of aborted transactions; a partial batch at the end is left out.

    ``transactions`` holds the first offset and the producer id of each aborted transaction, in any order. Raises
    BrokerError for malformed batches.
    """
    if not transactions:
        return batches
    aborted = AbortedFilter(sorted(transactions))
    kept: list[memoryview] = []
    for batch in iter_batches(batches):
        if batch.is_control:
            aborted.pass_marker(batch)
        elif not aborted.hides(batch):
            kept.append(batch.view)
    return memoryview(b"".join(kept))
