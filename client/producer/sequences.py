"""Idempotence, one partition at a time: which sequence numbers its batches carry (KIP-98, KIP-360).

A broker accepts a producer's batches of a partition only without gaps, and recognises one that it has already. So
a batch keeps its number for as long as its fate is unknown, batches are repeated in order, and after one is given up
the partition starts a new epoch at 0, once nothing of the old one is under way.

A broker that has never heard of a producer takes any number for its first. So the first batch goes alone: were it
refused for another reason, one behind it would be accepted in its place, and its own number never again.
"""

from collections.abc import Iterable

from .batch import BatchState, ProducerBatch, next_sequence

MAX_EPOCH = 2**15 - 1


class PartitionSequence:
    """The numbering of one partition's batches.

    Invariant: `tracked` holds the batches that were numbered and have no end yet, in the order of their numbers,
    whether they are under way or wait to be sent again.
    """

    __slots__ = ("_known_as", "next_sequence", "producer_epoch", "producer_id", "restart_wanted", "tracked")

    def __init__(self) -> None:
        self.producer_id = -1
        self.producer_epoch = -1
        self.next_sequence = 0
        self.restart_wanted = False
        self.tracked: list[ProducerBatch] = []
        self._known_as: tuple[int, int] | None = None
        """Producer id and epoch of the last acknowledged batch."""

    def adopt(self, producer_id: int, producer_epoch: int) -> None:
        """Start numbering for this producer, from 0; what was numbered and not sent is numbered anew."""
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.next_sequence = 0
        self.restart_wanted = False
        for batch in self.tracked:
            if not batch.keeps_producer:
                self._stamp(batch)

    def may_send(self, batch: ProducerBatch) -> bool:
        """Whether this batch, the first of its partition's queue, may go now.

        A repeated batch goes only when it is the next that the broker expects (Kafka's
        RecordAccumulator.shouldStopDrainBatchesForPartition); a new epoch begins when nothing is under way.
        """
        if batch.keeps_producer:
            return not batch.has_sequence or self._is_in_turn(batch, (batch.producer_id, batch.producer_epoch))
        if self.restart_wanted:
            return not self.is_under_way
        return self._is_in_turn(batch, (self.producer_id, self.producer_epoch))

    def _is_in_turn(self, batch: ProducerBatch, identity: tuple[int, int]) -> bool:
        if batch in self.tracked:
            return self.tracked[0] is batch
        return not self.tracked or self._known_as == identity

    @property
    def is_under_way(self) -> bool:
        """Whether a request with a batch of this partition awaits its answer."""
        return any(batch.state is BatchState.IN_FLIGHT for batch in self.tracked)

    @property
    def needs_new_producer(self) -> bool:
        """Whether the epochs of this producer id are used up for the restart that is due."""
        return self.restart_wanted and self.producer_epoch >= MAX_EPOCH

    def assign(self, batch: ProducerBatch) -> None:
        """Number a batch that `may_send` let pass; a restart that was due happens now.

        The epoch is raised here, without asking the broker: for a producer without transactions it is its own
        (Kafka's TransactionManager.bumpIdempotentProducerEpoch).
        """
        if self.restart_wanted:
            self.adopt(self.producer_id, self.producer_epoch + 1)
        if not batch.has_sequence:
            self.tracked.append(batch)
            self._stamp(batch)

    def track(self, batch: ProducerBatch) -> None:
        """Keep the order of a batch that someone else has numbered."""
        if batch.has_sequence and batch not in self.tracked:
            self.tracked.append(batch)

    def _stamp(self, batch: ProducerBatch) -> None:
        batch.stamp(self.producer_id, self.producer_epoch, self.next_sequence)
        self.next_sequence = next_sequence(self.next_sequence, batch.record_count)

    def is_first(self, batch: ProducerBatch) -> bool:
        """Whether everything before this batch has been acknowledged."""
        return bool(self.tracked) and self.tracked[0] is batch

    def delivered(self, batch: ProducerBatch) -> None:
        """Forget an acknowledged batch."""
        if batch in self.tracked:
            self.tracked.remove(batch)
            self._known_as = (batch.producer_id, batch.producer_epoch)

    def given_up(self, batch: ProducerBatch) -> None:
        """Forget a batch that the broker does not have, or may have: later numbers no longer fit."""
        if batch in self.tracked:
            self.tracked.remove(batch)
            self.restart_wanted = not batch.keeps_producer

    def replaced(self, batch: ProducerBatch, parts: Iterable[ProducerBatch]) -> None:
        """Put the parts of a split batch, numbered already, in its place."""
        if batch in self.tracked:
            index = self.tracked.index(batch)
            self.tracked[index : index + 1] = list(parts)

    def place_among(self, batch: ProducerBatch, queue: Iterable[ProducerBatch]) -> int:
        """Where in its partition's queue a batch that comes back belongs: after repeated ones with smaller numbers."""
        if batch not in self.tracked:
            return 0
        before = set(map(id, self.tracked[: self.tracked.index(batch)]))
        return sum(1 for queued in queue if id(queued) in before)
