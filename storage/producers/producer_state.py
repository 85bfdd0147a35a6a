"""The state of a log's idempotent and transactional producers (KIP-98, Kafka `ProducerStateManager`).

Rules, by name, for a client's batch with a producer id:

    fenced        an epoch below the producer's: INVALID_PRODUCER_EPOCH
    duplicate     epoch and sequence range of one of its last five batches: the old offsets are answered again
    new epoch     must begin at sequence 0: OUT_OF_ORDER_SEQUENCE_NUMBER
    next          the sequence after the last one (2**31 - 1 wraps to 0), else OUT_OF_ORDER_SEQUENCE_NUMBER
    unknown       a producer without state (new, expired, or its records deleted) may begin anywhere
    open          a producer with an open transaction may only write to that: INVALID_TXN_STATE
    zombie        a marker of an older coordinator: TRANSACTION_COORDINATOR_FENCED
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.records.control import EndTransactionMarker
from .producer_snapshot import ProducerSnapshot

RETAINED_BATCHES = 5
"""The number of batches kept for each producer: at most five requests are in flight, so five may be retried."""

MAX_SEQUENCE = 2**31 - 1
NO_EPOCH = -1
NO_SEQUENCE = -1
NO_OFFSET = -1
PRODUCER_ID_EXPIRATION_MS = 86_400_000
"""Kafka's default of `producer.id.expiration.ms`."""


class ProducerBatch(Protocol):
    """The fields of a batch that concern its producer: a `ProducedBatch` with offsets, or a `BatchView`."""

    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def base_sequence(self) -> int: ...
    @property
    def last_sequence(self) -> int: ...
    @property
    def base_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def is_transactional(self) -> bool: ...


class WrittenBatch(NamedTuple):
    """One of a producer's last batches; sequences and offsets are inclusive, `timestamp` is the largest one (ms)."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class CompletedTransaction(NamedTuple):
    """A transaction that a marker has ended; `last_offset` is the marker's offset."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class Producer:
    """The state of one producer; `transaction_first_offset` is -1 outside of transactions."""

    __slots__ = (
        "_seen_activity",
        "_silent_since_ms",
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_timestamp",
        "producer_id",
        "transaction_first_offset",
    )

    def __init__(self, producer_id: int, epoch: int = NO_EPOCH) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = NO_EPOCH
        self.last_timestamp = -1
        self.transaction_first_offset = NO_OFFSET
        self.batches: list[WrittenBatch] = []
        """The last batches of the epoch, at most `RETAINED_BATCHES`, oldest first."""
        self._seen_activity: tuple[int, int, int] | None = None
        self._silent_since_ms = 0

    def is_new_since(self, offset: int) -> bool:
        """Return whether the producer's first batch is known and lies at or above `offset`."""
        first = self.batches[0] if self.batches else None
        is_first = first is not None and first.first_sequence == 0 == self.epoch
        return is_first and first is not None and first.first_offset >= offset and self.coordinator_epoch == NO_EPOCH

    def cut_back(self, end_offset: int) -> bool:
        """Remove the batches that end at or above `end_offset`; return False, unchanged, if the log must be read.

        A producer that has ended transactions may have lost a marker, which is not stored here, and an epoch with it.
        """
        if self.coordinator_epoch != NO_EPOCH or self.transaction_first_offset != NO_OFFSET:
            return False
        kept = [written for written in self.batches if written.last_offset < end_offset]
        if len(kept) < len(self.batches):
            if not kept:
                return False
            self.batches = kept
            self.last_timestamp = kept[-1].timestamp
        return True

    @property
    def last_sequence(self) -> int:
        """Return the sequence of the producer's last record in this epoch, -1 if there is none."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def silence_ms(self, now_ms: int) -> int:
        """Return the time without a write as seen by earlier calls of this method (so 0 at the first call)."""
        activity = self.epoch, self.last_sequence, self.last_timestamp
        if activity != self._seen_activity:
            self._seen_activity, self._silent_since_ms = activity, now_ms
        return now_ms - self._silent_since_ms

    def enter_epoch(self, epoch: int) -> None:
        """Begin a new epoch, in which older batches are no longer duplicates."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()


class ProducerStates:
    """The producers of one log and its open transactions."""

    __slots__ = ("_ended", "_open", "producers")

    def __init__(self) -> None:
        self.producers: dict[int, Producer] = {}
        self._open: dict[int, int] = {}
        """The producer ids of open transactions by first offset; offsets only grow, so the dict is sorted."""
        self._ended: dict[int, int] = {}
        """The last offsets, by first offset, of ended transactions that the high watermark has not passed yet."""

    # --- before the write ---

    def check_data(self, batch: ProducerBatch, *, from_client: bool) -> WrittenBatch | None:
        """Check a data batch against the rules above; return the batch of which it is a duplicate, if any.

        Sequence numbers are checked only for batches from clients, epochs for all. Raises BrokerError.
        """
        producer = self.producers.get(batch.producer_id)
        if producer is None:
            return None
        epoch = batch.producer_epoch
        if from_client and epoch == producer.epoch:
            first_sequence, last_sequence = batch.base_sequence, batch.last_sequence
            for written in producer.batches:
                if written.first_sequence == first_sequence and written.last_sequence == last_sequence:
                    return written
        _check_epoch(producer, epoch)
        if from_client:
            _check_sequence(producer, epoch, batch.base_sequence)
        if producer.transaction_first_offset != NO_OFFSET and not batch.is_transactional:
            raise BrokerError(
                ErrorCode.INVALID_TXN_STATE,
                f"Expected transactional write from producer {producer.producer_id}",
            )
        return None

    def check_marker(self, batch: ProducerBatch, marker: EndTransactionMarker) -> None:
        """Check a transaction marker against the rules above. Raises BrokerError."""
        producer = self.producers.get(batch.producer_id)
        if producer is None:
            return
        _check_epoch(producer, batch.producer_epoch)
        if producer.coordinator_epoch > marker.coordinator_epoch:
            raise BrokerError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"Invalid coordinator epoch {marker.coordinator_epoch} for producer {producer.producer_id} "
                f"(zombie): last seen is {producer.coordinator_epoch}",
            )

    # --- after the write, and when a log is read again ---

    def record_data(self, batch: ProducerBatch) -> None:
        """Record a data batch that is in the log."""
        producer = self._known(batch.producer_id)
        producer.enter_epoch(batch.producer_epoch)
        if len(producer.batches) == RETAINED_BATCHES:
            del producer.batches[0]
        timestamp = batch.max_timestamp
        producer.batches.append(
            WrittenBatch(batch.base_sequence, batch.last_sequence, batch.base_offset, batch.last_offset, timestamp)
        )
        producer.last_timestamp = timestamp
        if batch.is_transactional and producer.transaction_first_offset == NO_OFFSET:
            producer.transaction_first_offset = batch.base_offset
            self._open[batch.base_offset] = producer.producer_id

    def record_marker(self, batch: ProducerBatch, marker: EndTransactionMarker) -> CompletedTransaction | None:
        """Record a marker that is in the log; return the transaction that it ended, unless that was empty."""
        producer = self._known(batch.producer_id)
        producer.enter_epoch(batch.producer_epoch)
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.last_timestamp = batch.max_timestamp
        first_offset, producer.transaction_first_offset = producer.transaction_first_offset, NO_OFFSET
        if first_offset == NO_OFFSET:
            return None
        self._open.pop(first_offset, None)
        self._ended[first_offset] = batch.last_offset
        return CompletedTransaction(producer.producer_id, first_offset, batch.last_offset, marker.is_abort)

    def last_stable_offset_after(self, completed: CompletedTransaction) -> int:
        """Return the last stable offset after the end of `completed`, as the transaction index stores it."""
        return next(iter(self._open), completed.last_offset + 1)

    @property
    def first_unstable_offset(self) -> int | None:
        """Return the start of the first transaction that is open, or ended above the high watermark.

        None without one.
        """
        first_open = next(iter(self._open), None)
        if not self._ended:
            return first_open
        first_ended = min(self._ended)
        return first_ended if first_open is None else min(first_open, first_ended)

    def high_watermark_advanced(self, high_watermark: int) -> None:
        """Remove ended transactions that are now wholly below `high_watermark`."""
        if self._ended:
            self._ended = {first: last for first, last in self._ended.items() if last >= high_watermark}

    def cut_back(self, end_offset: int) -> bool:
        """Restore the state at the log's end offset `end_offset`; return False if the log must be read for that.

        This is usually possible when an unreplicated end of the log is truncated, since producers have few batches in
        flight.
        """
        for producer in list(self.producers.values()):
            if producer.is_new_since(end_offset):
                del self.producers[producer.producer_id]
            elif not producer.cut_back(end_offset):
                return False
        return True

    # --- lifetime ---

    def expire(self, now_ms: int, expiration_ms: int = PRODUCER_ID_EXPIRATION_MS) -> None:
        """Remove producers without a write for `expiration_ms`, except those with an open transaction.

        Kafka uses the timestamps of their records as the time of the write, and so removes producers of old records at
        once: their retries could be appended twice.
        """
        expired = [
            producer.producer_id
            for producer in self.producers.values()
            if producer.silence_ms(now_ms) >= expiration_ms and producer.transaction_first_offset == NO_OFFSET
        ]
        for producer_id in expired:
            del self.producers[producer_id]

    def copy(self) -> ProducerStates:
        """Return a copy of the producers for a reader in another thread, without the data that only a replay needs."""
        twin = ProducerStates()
        twin.restore(self.snapshot())
        for producer_id, producer in twin.producers.items():
            producer.batches = list(self.producers[producer_id].batches)
        return twin

    def clear(self) -> None:
        """Remove all producers."""
        self.producers.clear()
        self._open.clear()
        self._ended.clear()

    def snapshot(self) -> list[ProducerSnapshot]:
        """Return all producers with their last batches, as in a snapshot file."""
        return [_snapshot_of(producer) for producer in self.producers.values()]

    def restore(self, snapshots: list[ProducerSnapshot]) -> None:
        """Replace all producers by those of a snapshot."""
        self.clear()
        for fields in snapshots:
            producer = _producer_of(fields)
            self.producers[producer.producer_id] = producer
        first_offsets = sorted(
            (producer.transaction_first_offset, producer.producer_id)
            for producer in self.producers.values()
            if producer.transaction_first_offset != NO_OFFSET
        )
        self._open = dict(first_offsets)

    def _known(self, producer_id: int) -> Producer:
        producer = self.producers.get(producer_id)
        if producer is None:
            producer = self.producers[producer_id] = Producer(producer_id)
        return producer


def _check_epoch(producer: Producer, epoch: int) -> None:
    if epoch < producer.epoch:
        raise BrokerError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"Epoch of producer {producer.producer_id} is {epoch}, which is smaller than the last seen epoch "
            f"{producer.epoch}",
        )


def _check_sequence(producer: Producer, epoch: int, first_sequence: int) -> None:
    if epoch != producer.epoch:
        if first_sequence != 0 and producer.epoch != NO_EPOCH:
            raise BrokerError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Invalid sequence number for new epoch of producer {producer.producer_id}: {epoch} (request epoch), "
                f"{first_sequence} (seq. number), {producer.epoch} (current producer epoch)",
            )
        return
    last = producer.last_sequence
    if first_sequence != (0 if last == MAX_SEQUENCE else last + 1):
        raise BrokerError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Out of order sequence number for producer {producer.producer_id}: {first_sequence} (incoming seq. "
            f"number), {last} (current end sequence number)",
        )


def _snapshot_of(producer: Producer) -> ProducerSnapshot:
    last = producer.batches[-1] if producer.batches else None
    return ProducerSnapshot(
        producer_id=producer.producer_id,
        epoch=producer.epoch,
        last_sequence=last.last_sequence if last else NO_SEQUENCE,
        last_offset=last.last_offset if last else NO_OFFSET,
        offset_delta=last.last_offset - last.first_offset if last else 0,
        timestamp=producer.last_timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        transaction_first_offset=producer.transaction_first_offset,
    )


def _producer_of(fields: ProducerSnapshot) -> Producer:
    producer = Producer(fields.producer_id, fields.epoch)
    producer.coordinator_epoch = fields.coordinator_epoch
    producer.last_timestamp = fields.timestamp
    producer.transaction_first_offset = fields.transaction_first_offset
    if fields.last_offset >= 0:
        first_sequence = fields.last_sequence - fields.offset_delta
        if first_sequence < 0 <= fields.last_sequence:
            first_sequence += MAX_SEQUENCE + 1
        producer.batches.append(
            WrittenBatch(
                first_sequence,
                fields.last_sequence,
                fields.last_offset - fields.offset_delta,
                fields.last_offset,
                fields.timestamp,
            )
        )
    return producer
