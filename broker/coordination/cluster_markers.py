"""The end of a transaction among several brokers: decided here, written where its partitions are led.

No marker goes out before the decision is in all in-sync logs of the coordinator's own partition: a coordinator that
takes over must find it, or it would decide anew. Markers are then sent again and again until every partition has one;
a partition that gets one twice is none the worse. Source: Kafka `TransactionMarkerChannelManager`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

import trio

from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ...storage.paths import TopicPartition
from ..coordinator_log import partition_for
from ..metadata.internal_topics import TRANSACTION_STATE
from ..metadata.store import MetadataStore
from ..partition import Partition
from ..partition_registry import PartitionRegistry
from ..peers import Peers
from ..transactions.markers import PartitionMarkers
from ..transactions.transaction import ProducerIdentity, Transaction
from .request_writes import when_replicated

logger = logging.getLogger(__name__)

PATIENCE_S = 30.0
"""How long one attempt may take (Kafka: request.timeout.ms)."""
BACKOFF_S = 0.1
SETTLED = frozenset({ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH})
"""A producer that is newer than the marker has ended the transaction itself."""


class ClusterMarkers:
    """Writes the markers of prepared transactions (`transactions.coordinator.Markers`); `run` must be running."""

    def __init__(self, partitions: PartitionRegistry, metadata: MetadataStore, peers: Peers) -> None:
        self._partitions = partitions
        self._metadata = metadata
        self._peers = peers
        self._under_way: dict[str, Transaction] = {}
        self._nursery: trio.Nursery | None = None
        self.here: PartitionMarkers
        """Writes into partitions that are led here; set by the broker."""
        self.written: Callable[[Transaction], None]
        """Called once every partition of a transaction has its marker; set by the broker."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Hold the tasks that write, until cancelled."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()

    def write(self, transaction: Transaction) -> bool:
        """Begin to end a prepared transaction, unless that is under way; False, as it takes some time."""
        if self._nursery is not None and self._under_way.get(transaction.transactional_id) != transaction:
            self._under_way[transaction.transactional_id] = transaction
            self._nursery.start_soon(self._end, transaction)
        return False

    async def _end(self, transaction: Transaction) -> None:
        try:
            if await self._write_all(transaction):
                self.written(transaction)
        except Exception:
            logger.exception("the end of transaction %s could not be written", transaction.transactional_id)
        finally:
            if self._under_way.get(transaction.transactional_id) == transaction:
                del self._under_way[transaction.transactional_id]

    async def _write_all(self, transaction: Transaction) -> bool:
        """Whether all partitions have their markers; not so if another broker looks after the transaction meanwhile."""
        state = self._state_partition(transaction.transactional_id)
        if state is None or not await self._is_decided(state):
            return False
        coordinator_epoch = state.leader_epoch
        missing = set(transaction.partitions)
        while True:
            for leader, partitions in self._by_leader(missing).items():
                marker = _marker(transaction, partitions, coordinator_epoch)
                missing -= await self._write_at(leader, marker)
            if not missing:
                return True
            await trio.sleep(BACKOFF_S)
            if not state.is_leader or state.leader_epoch != coordinator_epoch:
                return False

    def _state_partition(self, transactional_id: str) -> Partition | None:
        """The partition in which the decision was written."""
        topic = self._metadata.topics.get(TRANSACTION_STATE)
        if topic is None:
            return None
        return self._partitions.find(TRANSACTION_STATE, partition_for(transactional_id, len(topic.partitions)))

    async def _is_decided(self, state: Partition) -> bool:
        """Wait until the decision, the newest record here, is replicated; False if this broker leads no more."""
        decision = state.log.log_end_offset - 1
        while True:
            try:
                await state.replicated(decision, PATIENCE_S)
            except BrokerError as error:
                if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    return False
                await trio.sleep(BACKOFF_S)
            else:
                return True

    def _by_leader(self, partitions: Collection[TopicPartition]) -> dict[int, list[TopicPartition]]:
        led: dict[int, list[TopicPartition]] = {}
        for partition in sorted(partitions):
            led.setdefault(self._metadata.leader_of(*partition), []).append(partition)
        return led

    async def _write_at(self, leader: int, marker: WritableTxnMarker) -> set[TopicPartition]:
        """Write markers at one broker; returns where there need be no other."""
        partitions = [TopicPartition(topic.name, index) for topic in marker.topics for index in topic.partition_indexes]
        gone = {partition for partition in partitions if not self._metadata.has_partition(*partition)}
        if leader == self._metadata.node_id:
            return gone | await self._write_here(marker, partitions)
        try:
            response = await self._peers.ask(
                leader, WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse, timeout_s=PATIENCE_S
            )
        except BrokerError as error:
            logger.debug("markers for broker %d: %s", leader, error)
            return gone
        return gone | {
            TopicPartition(topic.name, partition.partition_index)
            for result in response.markers
            for topic in result.topics
            for partition in topic.partitions
            if partition.error_code in SETTLED
        }

    async def _write_here(
        self, marker: WritableTxnMarker, partitions: Collection[TopicPartition]
    ) -> set[TopicPartition]:
        settled = set()
        for partition in partitions:
            try:
                await when_replicated(self._write_one(partition, marker), PATIENCE_S)
            except BrokerError as error:
                if error.code not in SETTLED:
                    continue
            settled.add(partition)
        return settled

    async def _write_one(self, partition: TopicPartition, marker: WritableTxnMarker) -> None:
        producer = ProducerIdentity(marker.producer_id, marker.producer_epoch)
        self.here.write_one(
            partition, producer, commit=marker.transaction_result, coordinator_epoch=marker.coordinator_epoch
        )


def _marker(
    transaction: Transaction, partitions: Collection[TopicPartition], coordinator_epoch: int
) -> WritableTxnMarker:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return WritableTxnMarker(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_result=transaction.commits,
        coordinator_epoch=coordinator_epoch,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()],
    )
