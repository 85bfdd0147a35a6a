"""Markers of a transaction in a cluster of several brokers: written by the leaders of the transaction's partitions.

No marker is sent before all in-sync replicas of the coordinator's own partition have the decision: a new coordinator
must find it, or it could decide differently. Markers are then retried until every partition has one; a second marker in
a partition does no harm. Source: Kafka `TransactionMarkerChannelManager`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from functools import partial

import trio

from ....protocol.errors import ErrorCode
from ....protocol.internal_topics import TRANSACTION_STATE
from ....protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ....protocol.topic_partition import TopicPartition
from ...metadata.state import NO_LEADER
from ...metadata.store import MetadataStore
from ...peers.peers import Peers
from ...replicas.partition import Partition
from ...replicas.partition_registry import PartitionRegistry
from ..internal_log.coordinator_log import partition_for
from .marker_queue import SETTLED, MarkerQueue
from .markers import PartitionMarkers
from .transaction import Transaction

logger = logging.getLogger(__name__)

PATIENCE_S = 30.0
"""Timeout of one attempt (Kafka: request.timeout.ms)."""
BACKOFF_S = 0.1


class Ending:
    """A decided transaction whose markers are being written."""

    def __init__(self, transaction: Transaction, state: Partition) -> None:
        """Track the markers of ``transaction``; ``state`` is the partition that holds the decision."""
        self.missing = set(transaction.partitions)
        """The partitions that have no marker yet."""
        self._transaction = transaction
        self._state = state
        self._coordinator_epoch = state.leader_epoch

    @property
    def is_ours(self) -> bool:
        """Whether this broker is still the coordinator, in the same leader epoch."""
        return self._state.is_leader and self._state.leader_epoch == self._coordinator_epoch

    def marker(self, partitions: Collection[TopicPartition]) -> WritableTxnMarker:
        """Return the marker for some of the partitions."""
        topics: dict[str, list[int]] = {}
        for topic, index in partitions:
            topics.setdefault(topic, []).append(index)
        return WritableTxnMarker(
            producer_id=self._transaction.producer_id,
            producer_epoch=self._transaction.producer_epoch,
            transaction_result=self._transaction.commits,
            coordinator_epoch=self._coordinator_epoch,
            topics=[WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()],
        )


class ClusterMarkers:
    """A writer of the markers of prepared transactions (`transactions.coordinator.Markers`); `run` must be running."""

    def __init__(
        self,
        partitions: PartitionRegistry,
        metadata: MetadataStore,
        peers: Peers,
        here: PartitionMarkers,
        written: Callable[[Transaction], None],
    ) -> None:
        """Use `here` for partitions that this broker leads; call `written` for each completed transaction."""
        self._partitions = partitions
        self._metadata = metadata
        self._peers = peers
        self._queues: dict[int, MarkerQueue] = {}
        """Queue of each broker, by node id."""
        self._under_way: dict[str, Transaction] = {}
        self._nursery: trio.Nursery | None = None
        self._here = here
        self._written = written

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the tasks that write markers, until cancelled."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()

    def write(self, transaction: Transaction) -> bool:
        """Start to end a prepared transaction, unless that is in progress; return False, as the end takes time."""
        if self._nursery is not None and self._under_way.get(transaction.transactional_id) != transaction:
            self._under_way[transaction.transactional_id] = transaction
            self._nursery.start_soon(self._end, transaction)
        return False

    async def _end(self, transaction: Transaction) -> None:
        try:
            if await self._write_all(transaction):
                self._written(transaction)
        except Exception:
            logger.exception("the end of transaction %s could not be written", transaction.transactional_id)
        finally:
            if self._under_way.get(transaction.transactional_id) == transaction:
                del self._under_way[transaction.transactional_id]

    async def _write_all(self, transaction: Transaction) -> bool:
        """Write all markers; return False if another broker becomes the coordinator meanwhile."""
        state = self._state_partition(transaction.transactional_id)
        if state is None or not await self._is_decided(state):
            return False
        end = Ending(transaction, state)
        async with trio.open_nursery() as nursery:
            self._write_where_led(nursery, end, transaction.partitions)
        return not end.missing

    def _write_where_led(self, nursery: trio.Nursery, end: Ending, partitions: Collection[TopicPartition]) -> None:
        """Start the writes to these partitions, at all their leaders concurrently."""
        led: dict[int, list[TopicPartition]] = {}
        for partition in sorted(partitions):
            led.setdefault(self._metadata.leader_of(*partition), []).append(partition)
        for leader, its_own in led.items():
            nursery.start_soon(self._write_at, nursery, end, leader, its_own)

    async def _write_at(
        self, nursery: trio.Nursery, end: Ending, leader: int, partitions: Collection[TopicPartition]
    ) -> None:
        """Write the markers at one leader, and retry the remaining partitions at their leaders at that time."""
        settled = {partition for partition in partitions if not self._metadata.has_partition(*partition)}
        settled |= await self._ask_leader(leader, end.marker(partitions))
        end.missing -= settled
        remaining = set(partitions) - settled
        if remaining:
            await trio.sleep(BACKOFF_S)
            if end.is_ours:
                self._write_where_led(nursery, end, remaining)

    async def _ask_leader(self, leader: int, marker: WritableTxnMarker) -> set[TopicPartition]:
        """Write a marker at one broker; return the partitions that need no retry."""
        if leader == NO_LEADER:
            return set()
        if leader == self._metadata.node_id:
            (codes,) = await self._here.write_all([marker], PATIENCE_S).wait()
            return {partition for partition, code in codes.items() if code in SETTLED}
        if leader not in self._queues:
            self._queues[leader] = MarkerQueue(partial(self._ask, leader))
        return await self._queues[leader].write(marker)

    async def _ask(self, leader: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        return await self._peers.ask(leader, request, WriteTxnMarkersResponse, timeout_s=PATIENCE_S, purpose="markers")

    def _state_partition(self, transactional_id: str) -> Partition | None:
        """Return the partition that holds the decision."""
        topic = self._metadata.topics.get(TRANSACTION_STATE)
        if topic is None:
            return None
        return self._partitions.find(TRANSACTION_STATE, partition_for(transactional_id, len(topic.partitions)))

    async def _is_decided(self, state: Partition) -> bool:
        """Wait until the decision, the newest record, is replicated; return False if this broker leads no longer."""
        decision = state.log.log_end_offset - 1
        while True:
            code = await state.replicated(decision, PATIENCE_S).wait()
            if code is ErrorCode.NONE:
                return True
            if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                return False
            await trio.sleep(BACKOFF_S)
