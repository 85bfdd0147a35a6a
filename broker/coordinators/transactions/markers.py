"""Commit and abort markers: the end of a transaction, written into every partition of the transaction (KIP-98).

A marker fences the producer: after it, the log refuses batches of an older epoch. In `__consumer_offsets` it also
commits or discards the offsets of the transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.internal_topics import GROUP_METADATA
from ....protocol.messages.write_txn_markers import WritableTxnMarker
from ....protocol.records import v2
from ....protocol.records.compression import Codec
from ....protocol.records.control import ControlType, EndTransactionMarker, build_end_transaction_batch
from ....protocol.records.produced_cy import Produced, ProducedBatch
from ....protocol.topic_partition import TopicPartition
from ....storage.clock import Clock
from ....storage.log.partition_log import AppendOrigin
from ...replicas.partition import REPLICATED, Partition
from ...replicas.partition_registry import PartitionRegistry
from ...server.pending import Pending, all_completed, completed
from .transaction import ProducerIdentity, Transaction

logger = logging.getLogger(__name__)

GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


EndGroupOffsets = Callable[[int, int, bool], None]
"""Called for each replicated marker in `__consumer_offsets`, with partition, producer id, and whether it commits."""


class PartitionMarkers:
    """A writer of markers into the partitions of this broker."""

    def __init__(self, partitions: PartitionRegistry, end_group_offsets: EndGroupOffsets, clock: Clock) -> None:
        self._partitions = partitions
        self._end_group_offsets = end_group_offsets
        self._clock = clock

    def write(self, transaction: Transaction) -> bool:
        """Write a prepared transaction's marker into each of its partitions; return whether all could be written.

        A partition that was deleted in the meantime needs no marker.
        """
        failed = []
        for partition in sorted(transaction.partitions):
            try:
                self.write_one(partition, transaction.identity, commit=transaction.commits, coordinator_epoch=0)
            except BrokerError as error:
                if error.code not in GONE:
                    failed.append(str(partition))
        if failed:
            logger.warning("transaction %s has no marker yet in %s", transaction.transactional_id, ", ".join(failed))
        return not failed

    def write_all(
        self, markers: Sequence[WritableTxnMarker], timeout_s: float
    ) -> Pending[list[dict[TopicPartition, ErrorCode]]]:
        """Write markers as WriteTxnMarkers requests; return the pending errors of each marker by partition, complete
        once the markers are replicated."""
        places = [places_of(marker) for marker in markers]
        written = [
            self._try_one(at, marker, timeout_s)
            for marker, of_marker in zip(markers, places, strict=True)
            for at in of_marker
        ]

        def by_marker(codes: Sequence[ErrorCode]) -> list[dict[TopicPartition, ErrorCode]]:
            rest = iter(codes)
            return [{at: next(rest) for at in of_marker} for of_marker in places]

        return all_completed(written).map(by_marker)

    def _try_one(self, at: TopicPartition, marker: WritableTxnMarker, timeout_s: float) -> Pending[ErrorCode]:
        producer = ProducerIdentity(marker.producer_id, marker.producer_epoch)
        commit, coordinator_epoch = marker.transaction_result, marker.coordinator_epoch
        try:
            partition, offset = self.write_one(at, producer, commit=commit, coordinator_epoch=coordinator_epoch)
        except BrokerError as error:
            return completed(error.code)
        return partition.replicated(offset, timeout_s)

    def write_one(
        self, at: TopicPartition, producer: ProducerIdentity, *, commit: bool, coordinator_epoch: int
    ) -> tuple[Partition, int]:
        """Write one marker; return the partition and the marker's offset.

        Raises BrokerError: UNKNOWN_TOPIC_OR_PARTITION, or the log's refusal.
        """
        partition = self._partitions.led(*at)
        offset = self._append(partition, producer, commit, coordinator_epoch)
        partition.wake_waiters()
        if at.topic == GROUP_METADATA:
            replicated = partition.replicated(offset)

            def end_offsets() -> None:
                if replicated.result() in REPLICATED:
                    self._end_group_offsets(at.partition, producer.producer_id, commit)

            replicated.when_complete(end_offsets)
        return partition, offset

    def _append(self, partition: Partition, producer: ProducerIdentity, commit: bool, coordinator_epoch: int) -> int:
        now_ms = self._clock.now_ms()
        kind = ControlType.COMMIT if commit else ControlType.ABORT
        data = build_end_transaction_batch(
            EndTransactionMarker(kind, coordinator_epoch),
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            timestamp=now_ms,
        )
        batch = ProducedBatch(
            position=0,
            size_bytes=len(data),
            magic=v2.MAGIC,
            codec=Codec.NONE,
            record_count=1,
            max_timestamp=now_ms,
            keyed=True,
            is_transactional=True,
            is_control=True,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
        )
        produced = Produced(memoryview(bytearray(data)), [batch])
        return partition.append(produced, origin=AppendOrigin.COORDINATOR).last_offset


def places_of(marker: WritableTxnMarker) -> list[TopicPartition]:
    """Return the partitions into which a marker must be written."""
    return [TopicPartition(topic.name, index) for topic in marker.topics for index in topic.partition_indexes]
