"""The log of a coordinator: keyed records in the partitions of a compacted internal topic, replayed at the start.

It is used for `__consumer_offsets` and `__transaction_state`. Only the coordinators interpret keys and values. An
appended record survives a crash of the process; whether it survives a crash of the machine depends on `log.flush.*`, as
in Kafka.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import NamedTuple, Protocol, TypeAlias

from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.records import v2
from ....protocol.records.batches import BatchView, iter_batches, iter_records
from ....protocol.records.compression import Codec
from ....protocol.records.control import ControlType, control_type, encode_key
from ....protocol.records.produced_cy import Produced, ProducedBatch
from ....protocol.records.record import Record
from ....storage.clock import Clock
from ....storage.log.partition_log import AppendOrigin
from ...replicas.partition import Partition
from ...server.pending import Pending

logger = logging.getLogger(__name__)

REPLAY_BYTES = 4 * 1024 * 1024
"""Bytes of a partition that are replayed in one step."""

TROUBLES = frozenset(
    {ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_ENOUGH_REPLICAS}
)
"""Refusals that concern the partition; others concern what a client has sent."""


class KeyValue(NamedTuple):
    """A record to write; a value of None deletes the key (a tombstone)."""

    key: bytes
    value: bytes | None


class ReplayedRecord(NamedTuple):
    """A record read from the log; `producer_id` is -1 unless the record belongs to a transaction."""

    offset: int
    key: bytes
    value: bytes | None
    producer_id: int


class ReplayedMarker(NamedTuple):
    """A marker read from the log, which ends a producer's transaction on this partition."""

    offset: int
    producer_id: int
    is_commit: bool


Replayed: TypeAlias = ReplayedRecord | ReplayedMarker


class TransactionalProducer(NamedTuple):
    """A producer in whose transaction records are appended."""

    producer_id: int
    producer_epoch: int


NO_PRODUCER = TransactionalProducer(v2.NO_PRODUCER_ID, v2.NO_PRODUCER_EPOCH)


class InternalTopics(Protocol):
    """A source of internal topics and their partitions."""

    def ensure_internal_topic(self, name: str) -> int:
        """Create the topic if it is missing; return its number of partitions."""

    def internal_topic_partitions(self, name: str) -> int:
        """Return the number of the topic's partitions, 0 if the topic does not exist."""

    def internal_partition(self, name: str, index: int) -> Partition | None:
        """Return a partition of the topic, None if this broker has no replica of it."""


class CoordinatorLog:
    """A view of one internal topic for its coordinator."""

    def __init__(self, topic: str, topics: InternalTopics, clock: Clock, *, codec: Codec = Codec.NONE) -> None:
        self.topic = topic
        self._topics = topics
        self._clock = clock
        self._codec = codec
        self._refusals: dict[int, ErrorCode] = {}
        """Error with which each partition refused the last append, by partition index."""

    def existing_partitions(self) -> int:
        """Return the number of the topic's partitions, 0 if the topic does not exist."""
        return self._topics.internal_topic_partitions(self.topic)

    @property
    def partition_count(self) -> int:
        """The number of the topic's partitions; reading it creates the topic if it is missing."""
        return self._topics.ensure_internal_topic(self.topic)

    def existing_partition_of(self, key: str) -> int:
        """Return the partition of a key, or -1 if the topic does not exist; never create the topic."""
        count = self.existing_partitions()
        return partition_for(key, count) if count else -1

    def partition_of(self, key: str) -> int:
        """Return the partition that holds a group or transactional id, by Java's hash of the id, as in Kafka."""
        return partition_for(key, self.partition_count)

    def append(
        self,
        index: int,
        records: Collection[tuple[bytes, bytes | None]],
        *,
        producer: TransactionalProducer | None = None,
    ) -> int:
        """Append records as one batch; return the offset of the first.

        The records may be lost until they are `replicated`. Raises BrokerError: COORDINATOR_NOT_AVAILABLE if this
        broker has no replica of the partition, else the log's refusal.
        """
        self._topics.ensure_internal_topic(self.topic)
        try:
            partition = self._partition(index)
            produced = self._batch(records, producer)
            if produced.size_bytes > partition.log.config.max_message_bytes:
                raise BrokerError(ErrorCode.MESSAGE_TOO_LARGE)
            base_offset = partition.append(produced, origin=AppendOrigin.COORDINATOR).base_offset
        except BrokerError as refusal:
            self._note_refusal(index, refusal)
            raise
        self._refusals.pop(index, None)
        return base_offset

    def _note_refusal(self, index: int, refusal: BrokerError) -> None:
        """Log why a partition takes no records: once for each reason until the partition takes records again.

        Clients repeat what was refused ten times a second.
        """
        if refusal.code in TROUBLES and self._refusals.get(index) != refusal.code:
            self._refusals[index] = refusal.code
            message = f" ({refusal.message})" if refusal.message else ""
            logger.warning("%s-%d takes no records: %s%s", self.topic, index, refusal.code.name, message)

    def is_replicated(self, index: int, offset: int) -> bool:
        """Return whether all in-sync replicas have the record at ``offset``. Raises BrokerError as `replicated`."""
        return self._partition(index).is_replicated(offset)

    def replicated(self, index: int, offset: int, timeout_s: float = math.inf) -> Pending[ErrorCode]:
        """Return a pending code for the record at ``offset``; see `Partition.replicated`.

        Raises BrokerError COORDINATOR_NOT_AVAILABLE if this broker has no replica of the partition.
        """
        return self._partition(index).replicated(offset, timeout_s)

    def _partition(self, index: int) -> Partition:
        partition = self._topics.internal_partition(self.topic, index)
        if partition is None:
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return partition

    def replay(self, index: int) -> Iterator[list[Replayed]]:
        """Yield a partition's records from its start, some megabytes at a time, so that the caller can pause."""
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
        identity = NO_PRODUCER if producer is None else producer
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
    """Return the partition of an internal topic for a group or transactional id (Kafka: Utils.abs(hash) % count)."""
    return java_hash(key) % partition_count


@lru_cache(maxsize=10_000)
def java_hash(text: str) -> int:
    """Return Java's `String.hashCode` over UTF-16 units, made positive as Kafka's `Utils.abs` does."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(units), 2):
        value = (value * 31 + (units[position] << 8 | units[position + 1])) & 0xFFFFFFFF
    signed = value - (1 << 32) if value & 0x80000000 else value
    return 0 if signed == -(1 << 31) else abs(signed)
