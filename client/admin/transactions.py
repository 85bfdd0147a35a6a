"""Transactions and their producers (KIP-664), and the abort of hanging transactions."""

from __future__ import annotations

from collections.abc import Iterable

from ...protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from ...protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from ...protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ...protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ...protocol.messages.list_transactions import TransactionState as ListedTransaction
from ...protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ...protocol.topic_partition import AnyTopicPartition
from ..consumer.subscription import by_topic
from ..wire.cluster import CoordinatorType
from .base import AdminBase, raise_for

FENCING_TIMEOUT_MS = 60_000


class TransactionAdmin(AdminBase):
    """The methods of the admin client for transactions."""

    async def list_transactions(
        self, *, states: Iterable[str] = (), producer_ids: Iterable[int] = ()
    ) -> list[ListedTransaction]:
        """Return the transactional ids of all coordinators, or only those in these states and of these producers."""
        request = ListTransactionsRequest(state_filters=list(states), producer_id_filters=list(producer_ids))
        found: list[ListedTransaction] = []
        for answer in (await self.ask_each(request, ListTransactionsResponse)).values():
            raise_for(answer.error_code, "ListTransactions")
            found += answer.transaction_states
        return found

    async def describe_transaction(self, transactional_id: str) -> TransactionState:
        """Return state, producer and partitions of a transactional id."""

        async def attempt(node: int) -> TransactionState:
            request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
            answer = await self._cluster.request(node, request, DescribeTransactionsResponse)
            state = answer.transaction_states[0]
            raise_for(state.error_code, transactional_id)
            return state

        return await self._ask_coordinator(
            transactional_id, attempt, "DescribeTransactions", CoordinatorType.TRANSACTION
        )

    async def describe_producers(
        self, partitions: Iterable[AnyTopicPartition]
    ) -> dict[AnyTopicPartition, list[ProducerState]]:
        """Return the active producers of these partitions, as described by their leaders."""

        async def ask(leader: int, places: list[AnyTopicPartition]) -> dict[AnyTopicPartition, list[ProducerState]]:
            request = DescribeProducersRequest(
                topics=[
                    TopicRequest(name=topic, partition_indexes=indexes) for topic, indexes in by_topic(places).items()
                ]
            )
            answer = await self._cluster.request(leader, request, DescribeProducersResponse)
            found = {}
            for topic in answer.topics:
                for part in topic.partitions:
                    raise_for(part.error_code, part.error_message or f"{topic.name}-{part.partition_index}")
                    found[topic.name, part.partition_index] = part.active_producers
            return found

        return await self._ask_leaders(partitions, ask)

    async def fence_producers(self, transactional_id: str) -> tuple[int, int]:
        """Fence the producers with this id, and abort an open transaction; return the new (producer id, epoch)."""

        async def attempt(node: int) -> tuple[int, int]:
            request = InitProducerIdRequest(
                transactional_id=transactional_id, transaction_timeout_ms=FENCING_TIMEOUT_MS
            )
            answer = await self._cluster.request(node, request, InitProducerIdResponse)
            raise_for(answer.error_code, transactional_id)
            return answer.producer_id, answer.producer_epoch

        return await self._ask_coordinator(transactional_id, attempt, "InitProducerId", CoordinatorType.TRANSACTION)

    async def abort_transaction(
        self, place: AnyTopicPartition, producer_id: int, producer_epoch: int, coordinator_epoch: int
    ) -> None:
        """Write an abort marker to one partition, for a transaction that its coordinator does not have any more."""

        async def ask(leader: int, places: list[AnyTopicPartition]) -> dict[AnyTopicPartition, None]:
            marker = WritableTxnMarker(
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                coordinator_epoch=coordinator_epoch,
                topics=[WritableTxnMarkerTopic(name=place[0], partition_indexes=[place[1]])],
            )
            answer = await self._cluster.request(
                leader, WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse
            )
            for written in answer.markers:
                for topic in written.topics:
                    for part in topic.partitions:
                        raise_for(part.error_code, f"{topic.name}-{part.partition_index}")
            return dict.fromkeys(places)

        await self._ask_leaders([place], ask)
