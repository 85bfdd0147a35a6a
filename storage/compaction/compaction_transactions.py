"""The transactions that a compaction passes: aborted records, and markers that may be removed.

Source: Kafka `CleanedTransactionMetadata`.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...protocol.records.batches import BatchView
from ..index.transaction_index import AbortedTransaction
from ..producers.producer_replay import marker_of


class PassingTransactions:
    """The state of the transactions at the current batch; batches are passed in the order of their offsets."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._to_come = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
        self._aborted: dict[int, AbortedTransaction] = {}
        self._has_batches: set[int] = set()
        """The producers whose open transaction has remaining records."""
        self.kept: list[AbortedTransaction] = []
        """Aborted transactions whose marker was passed and that have remaining records."""

    def take_kept(self) -> list[AbortedTransaction]:
        """Return and remove the entries for the transaction index of the finished segment."""
        kept, self.kept = self.kept, []
        return kept

    def is_aborted(self, batch: BatchView) -> bool:
        """Return whether a data batch belongs to an aborted transaction."""
        self._begin_up_to(batch.last_offset)
        if not batch.is_transactional:
            return False
        self._has_batches.add(batch.producer_id)
        return batch.producer_id in self._aborted

    def is_marker_of_nothing(self, batch: BatchView) -> bool:
        """Return whether a control batch ends a transaction without any record. Raises BrokerError INVALID_RECORD."""
        self._begin_up_to(batch.last_offset)
        if batch.record_count == 0:
            # An earlier compaction emptied the batch and kept it only for the producer's state.
            return True
        marker = marker_of(batch)
        if marker is None:
            return False
        had_batches = batch.producer_id in self._has_batches
        self._has_batches.discard(batch.producer_id)
        if marker.is_abort:
            transaction = self._aborted.pop(batch.producer_id, None)
            if transaction is None or not had_batches:
                return True
            self.kept.append(transaction)
            return False
        return not had_batches

    def _begin_up_to(self, offset: int) -> None:
        while self._to_come and self._to_come[-1].first_offset <= offset:
            transaction = self._to_come.pop()
            self._aborted[transaction.producer_id] = transaction
