"""A coordinator's memory: keyed records in the partitions of a compacted internal topic, read back at start.

Used for `__consumer_offsets` and `__transaction_state`. What the keys and values mean is their coordinator's affair.
A record that was appended survives the process; whether it survives the machine is up to `log.flush.*`, as in Kafka.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import NamedTuple, Protocol, TypeAlias

from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.records import v2
from ....protocol.records.batches import BatchView, iter_batches, iter_records
from ....protocol.records.compression import Codec
from ....protocol.records.control import ControlType, control_type, encode_key
from ....protocol.records.produced import Produced, ProducedBatch
from ....protocol.records.record import Record
from ....storage.clock import Clock
from ....storage.log.partition_log import AppendOrigin
from ...replicas.partition import Partition, Settle
from .request_writes import note_written

REPLAY_BYTES = 4 * 1024 * 1024
"""Bytes of a partition that are replayed in one go."""


class KeyValue(NamedTuple):
    """A record to write; a value of None takes the key back (a tombstone)."""

    key: bytes
    value: bytes | None


class ReplayedRecord(NamedTuple):
    """A record found in the log; `producer_id` is -1 unless it belongs to a transaction."""

    offset: int
    key: bytes
    value: bytes | None
    producer_id: int


class ReplayedMarker(NamedTuple):
    """The end of a producer's transaction on this partition."""

    offset: int
    producer_id: int
    is_commit: bool


Replayed: TypeAlias = ReplayedRecord | ReplayedMarker


class TransactionalProducer(NamedTuple):
    """In whose transaction records are appended."""

    producer_id: int
    producer_epoch: int


class InternalTopics(Protocol):
    """Where internal topics come from and are found."""

    def ensure_internal_topic(self, name: str) -> int:
        """Create the topic if it is missing; returns its number of partitions."""

    def internal_topic_partitions(self, name: str) -> int:
        """How many partitions the topic has; 0 if there is no such topic."""

    def internal_partition(self, name: str, index: int) -> Partition | None:
        """A partition of it, if there is such one here."""


class CoordinatorLog:
    """One internal topic as its coordinator uses it."""

    def __init__(self, topic: str, topics: InternalTopics, clock: Clock, *, codec: Codec = Codec.NONE) -> None:
        self.topic = topic
        self._topics = topics
        self._clock = clock
        self._codec = codec

    def existing_partitions(self) -> int:
        """How many partitions there are already, to be replayed: 0 if the topic does not exist."""
        return self._topics.internal_topic_partitions(self.topic)

    @property
    def partition_count(self) -> int:
        """How many partitions the topic has; creates it if it is missing."""
        return self._topics.ensure_internal_topic(self.topic)

    def existing_partition_of(self, key: str) -> int:
        """As `partition_of`, but -1 if the topic does not exist, which then is not created."""
        count = self.existing_partitions()
        return partition_for(key, count) if count else -1

    def partition_of(self, key: str) -> int:
        """The partition that holds all records of a group or transactional id: Java's hash of it, as in Kafka."""
        return partition_for(key, self.partition_count)

    def append(
        self,
        index: int,
        records: Collection[tuple[bytes, bytes | None]],
        *,
        producer: TransactionalProducer | None = None,
        holds_answer: bool = True,
    ) -> int:
        """Append records as one batch; returns the offset of the first.

        The present request's answer waits until they are replicated; without ``holds_answer``, see `when_replicated`.
        Raises BrokerError: COORDINATOR_NOT_AVAILABLE if the partition is not here, else what the log refuses with.
        """
        self._topics.ensure_internal_topic(self.topic)
        partition = self._partition(index)
        produced = self._batch(records, producer)
        if produced.size_bytes > partition.log.config.max_message_bytes:
            raise BrokerError(ErrorCode.MESSAGE_TOO_LARGE)
        base_offset = partition.append(produced, origin=AppendOrigin.COORDINATOR).base_offset
        if holds_answer:
            note_written(partition, base_offset + len(records) - 1)
        return base_offset

    def when_replicated(self, index: int, offset: int, settle: Settle, *, timeout_s: float = math.inf) -> None:
        """Call ``settle``, maybe at once, when the record at ``offset`` is in all in-sync logs, or will not be.

        Raises BrokerError COORDINATOR_NOT_AVAILABLE if the partition is not here.
        """
        self._partition(index).when_replicated(offset, settle, timeout_s=timeout_s)

    def _partition(self, index: int) -> Partition:
        partition = self._topics.internal_partition(self.topic, index)
        if partition is None:
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return partition

    def tell_of(self, index: int, offset: int) -> None:
        """Hold the answer to the present request back until the record at ``offset`` is replicated, if it is not."""
        partition = self._topics.internal_partition(self.topic, index)
        if partition is not None and not partition.is_replicated(offset):
            note_written(partition, offset)

    def tell_of_all(self, index: int) -> None:
        """The same for all that the partition holds."""
        partition = self._topics.internal_partition(self.topic, index)
        if partition is not None and partition.role is not None:
            self.tell_of(index, partition.log.log_end_offset - 1)

    def replay(self, index: int) -> Iterator[list[Replayed]]:
        """What a partition holds from its start, some megabytes at a time, so that the caller can pause between."""
        partition = self._topics.internal_partition(self.topic, index)
        if partition is None:
            return
        log = partition.log
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            with log.read(offset, REPLAY_BYTES) as stretch:
                data = stretch.read()
            replayed: list[Replayed] = []
            next_offset = offset
            for batch in iter_batches(data):
                replayed.extend(entry for entry in _entries(batch) if entry.offset >= offset)
                next_offset = batch.last_offset + 1
            if next_offset <= offset:
                return
            yield replayed
            offset = next_offset

    def _batch(
        self, records: Collection[tuple[bytes, bytes | None]], producer: TransactionalProducer | None
    ) -> Produced:
        now_ms = self._clock.now_ms()
        identity = TransactionalProducer(v2.NO_PRODUCER_ID, v2.NO_PRODUCER_EPOCH) if producer is None else producer
        sequence = v2.NO_SEQUENCE if producer is None else 0
        data = v2.build_batch(
            [Record(offset, now_ms, key, value) for offset, (key, value) in enumerate(records)],
            codec=self._codec,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=sequence,
            is_transactional=producer is not None,
        )
        batch = ProducedBatch(
            position=0,
            size_bytes=len(data),
            magic=v2.MAGIC,
            codec=self._codec,
            record_count=len(records),
            max_timestamp=now_ms,
            keyed=True,
            is_transactional=producer is not None,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=sequence,
        )
        return Produced(memoryview(bytearray(data)), [batch])


def _entries(batch: BatchView) -> Iterator[Replayed]:
    for record in iter_records(batch):
        if batch.is_control:
            kind = control_type(record.key or encode_key(ControlType.UNKNOWN))
            if kind in (ControlType.ABORT, ControlType.COMMIT):
                yield ReplayedMarker(record.offset, batch.producer_id, kind is ControlType.COMMIT)
        elif record.key is not None:
            producer_id = batch.producer_id if batch.is_transactional else v2.NO_PRODUCER_ID
            yield ReplayedRecord(record.offset, record.key, record.value, producer_id)


def partition_for(key: str, partition_count: int) -> int:
    """The partition of an internal topic that keeps a group or transactional id (Kafka: Utils.abs(hash) % count)."""
    return java_hash(key) % partition_count


@lru_cache(maxsize=10_000)
def java_hash(text: str) -> int:
    """Java's `String.hashCode` over UTF-16 units, made positive as Kafka's `Utils.abs` does."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(units), 2):
        value = (value * 31 + (units[position] << 8 | units[position + 1])) & 0xFFFFFFFF
    signed = value - (1 << 32) if value & 0x80000000 else value
    return 0 if signed == -(1 << 31) else abs(signed)
