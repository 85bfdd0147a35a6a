"""What `Producer.send` gives back: one record's way to its place in the log."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, NamedTuple

from ..protocol.records.record import NO_TIMESTAMP

if TYPE_CHECKING:
    from .batch import ProducerBatch


class RecordMetadata(NamedTuple):
    """Where a record is: `offset` is -1 with acks=0 and for duplicates whose offset the broker no longer knows."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since the epoch: the record's own, or the broker's for topics with LogAppendTime."""


class Delivery:
    """A future-like view of one record: await it for its `RecordMetadata`, or for what became of it instead.

    Being awaited twice, by several tasks or not at all is fine. Cancelling the wait does not recall the record.
    """

    __slots__ = ("_batch", "_index", "timestamp")

    def __init__(self, batch: ProducerBatch, index: int, timestamp: int) -> None:
        self._batch = batch
        self._index = index
        self.timestamp = timestamp

    def __await__(self) -> Generator[Any, Any, RecordMetadata]:
        return self.wait().__await__()

    async def wait(self) -> RecordMetadata:
        """Wait until the record is acknowledged.

        Raises BrokerError (refused), DeadlineExceededError (`delivery.timeout.ms`) or AbandonedError.
        """
        await self.wait_done()
        return self.result()

    async def wait_done(self) -> None:
        """Wait until the record was acknowledged or has failed, without raising what it failed with."""
        while not (batch := self._whereabouts()).is_done:
            await batch.finished.wait()

    @property
    def finished_at(self) -> float:
        """When that was, on trio's clock."""
        return self._whereabouts().finished_at

    @property
    def is_done(self) -> bool:
        """Whether the record was acknowledged or has failed."""
        return self._whereabouts().is_done

    @property
    def topic(self) -> str:
        """The record's topic."""
        return self._batch.topic

    @property
    def partition(self) -> int:
        """The record's partition, known from the start."""
        return self._batch.partition

    @property
    def offset(self) -> int:
        """The record's offset. Raises as `result` does."""
        return self.result().offset

    @property
    def error(self) -> Exception | None:
        """Why the record failed; None if it did not, or not yet."""
        batch = self._whereabouts()
        return batch.record_errors.get(self._index, batch.error) if batch.record_errors else batch.error

    def result(self) -> RecordMetadata:
        """The outcome, without waiting. Raises it if it is an error, RuntimeError if there is none yet."""
        batch = self._whereabouts()
        if not batch.is_done:
            raise RuntimeError("the record is still on its way; await its delivery")
        if (error := self.error) is not None:
            raise error
        base_offset = batch.acknowledged_base_offset
        offset = base_offset + self._index if base_offset >= 0 else -1
        append_time = batch.acknowledged_append_time
        timestamp = append_time if append_time != NO_TIMESTAMP else self.timestamp
        return RecordMetadata(batch.topic, batch.partition, offset, timestamp)

    def _whereabouts(self) -> ProducerBatch:
        """The batch that has the record now: a split puts two in the place of one (KIP-126)."""
        while halves := self._batch.halves:
            first, second = halves
            if self._index < first.record_count:
                self._batch = first
            else:
                self._batch = second
                self._index -= first.record_count
        return self._batch
