"""Idempotence of one partition: the sequence numbers of its batches (KIP-98, KIP-360).

A broker accepts a producer's batches of a partition only without gaps, and recognises a batch that it has stored
already. So a batch keeps its number until it is delivered or failed, batches are retried in order, and after a batch
has failed the partition starts a new epoch at 0, once no batch of the old epoch is in flight.

A broker without state of a producer accepts any number in the first batch. So the first batch is sent alone: if it
were refused for another reason, a batch behind it would be accepted as the first, and the number of the refused
batch would never be accepted again.

Ordinary Python that is also compiled, as ``appending_cy.py`` is: ``sequences_cy.pxd`` gives the C types.
"""

from __future__ import annotations

from collections.abc import Iterable

try:
    import cython
except ImportError:
    from ...protocol.records import cython_stand_in as cython

if not cython.compiled:
    from .batch_cy import ProducerBatch

from ...protocol.records.v2 import next_sequence
from .batch_cy import BatchState

IN_FLIGHT = BatchState.IN_FLIGHT
MAX_EPOCH = 2**15 - 1


class PartitionSequence:
    """The sequence numbers of one partition's batches.

    Invariant: `tracked` holds the batches that have a number and are neither delivered nor failed, in the order of
    their numbers, in flight or queued for a retry.
    """

    __slots__ = (
        "_known_epoch",
        "_known_id",
        "next_sequence",
        "producer_epoch",
        "producer_id",
        "restart_wanted",
        "tracked",
    )

    def __init__(self) -> None:
        self.producer_id = -1
        self.producer_epoch = -1
        self.next_sequence = 0
        self.restart_wanted = False
        self.tracked: list[ProducerBatch] = []
        self._known_id = -1
        self._known_epoch = -1
        """The producer id and epoch of the last acknowledged batch, -1 before one."""

    def adopt(self, producer_id: int, producer_epoch: int) -> None:
        """Start the numbers of this producer at 0; batches that have a number and were not sent get a new one."""
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.next_sequence = 0
        self.restart_wanted = False
        for batch in self.tracked:
            if not batch.keeps_producer:
                self._stamp(batch)

    def may_send(self, batch: ProducerBatch) -> bool:
        """Return whether this batch, the first of its partition's queue, may be sent now.

        A retried batch is sent only when it has the next number that the broker expects (Kafka's
        RecordAccumulator.shouldStopDrainBatchesForPartition); a new epoch begins when no batch is in flight.
        """
        if batch.keeps_producer:
            return not batch.has_sequence or self._is_in_turn(batch, batch.producer_id, batch.producer_epoch)
        if self.restart_wanted:
            return not self.is_under_way
        return self._is_in_turn(batch, self.producer_id, self.producer_epoch)

    def _is_in_turn(self, batch: ProducerBatch, producer_id: int, producer_epoch: int) -> bool:
        if not self.tracked:
            return True
        if batch in self.tracked:
            return self.tracked[0] is batch
        return self._known_id == producer_id and self._known_epoch == producer_epoch

    @property
    def is_under_way(self) -> bool:
        """Whether a batch of this partition is in flight."""
        for batch in self.tracked:  # noqa: SIM110  # compiled, a loop is faster than a generator
            if batch.state is IN_FLIGHT:
                return True
        return False

    @property
    def needs_new_producer(self) -> bool:
        """Whether the pending restart needs a new producer id because the epochs of this one are used up."""
        return self.restart_wanted and self.producer_epoch >= MAX_EPOCH

    def assign(self, batch: ProducerBatch) -> None:
        """Assign a number to a batch that `may_send` has allowed; a pending restart happens now.

        The epoch is raised here, without asking the broker: a producer without transactions raises its own epoch
        (Kafka's TransactionManager.bumpIdempotentProducerEpoch).
        """
        if self.restart_wanted:
            self.adopt(self.producer_id, self.producer_epoch + 1)
        if not batch.has_sequence:
            self.tracked.append(batch)
            self._stamp(batch)

    def track(self, batch: ProducerBatch) -> None:
        """Track a batch with a sequence number of another producer, to keep the order."""
        if batch.has_sequence and batch not in self.tracked:
            self.tracked.append(batch)

    def _stamp(self, batch: ProducerBatch) -> None:
        batch.stamp(self.producer_id, self.producer_epoch, self.next_sequence)
        self.next_sequence = next_sequence(self.next_sequence, batch.record_count)

    def is_first(self, batch: ProducerBatch) -> bool:
        """Return whether all batches before this one have been acknowledged."""
        return bool(self.tracked) and self.tracked[0] is batch

    def delivered(self, batch: ProducerBatch) -> None:
        """Remove an acknowledged batch from `tracked`."""
        if batch in self.tracked:
            self.tracked.remove(batch)
            self._known_id = batch.producer_id
            self._known_epoch = batch.producer_epoch

    def given_up(self, batch: ProducerBatch) -> None:
        """Remove a batch that the broker does not have, or may have: later numbers do not continue the sequence any
        more.
        """
        if batch in self.tracked:
            self.tracked.remove(batch)
            self.restart_wanted = not batch.keeps_producer

    def replaced(self, batch: ProducerBatch, parts: Iterable[ProducerBatch]) -> None:
        """Replace a split batch by its parts, which have numbers already."""
        if batch in self.tracked:
            index = self.tracked.index(batch)
            self.tracked[index : index + 1] = list(parts)

    def place_among(self, batch: ProducerBatch, queue: Iterable[ProducerBatch]) -> int:
        """Return the index in its partition's queue for a batch that is put back: after retried batches with smaller
        numbers.
        """
        if batch not in self.tracked:
            return 0
        before = set(map(id, self.tracked[: self.tracked.index(batch)]))
        return sum(1 for queued in queue if id(queued) in before)
