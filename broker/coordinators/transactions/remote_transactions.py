"""Verification of writes in transactions that another broker coordinates: it is asked before the append.

Source: Kafka `AddPartitionsToTxnManager` (KIP-890).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.internal_topics import TRANSACTION_STATE
from ....protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ....protocol.topic_partition import TopicPartition
from ...metadata.state import NO_LEADER
from ...metadata.store import MetadataStore
from ...peers.request_errors import UNREACHABLE
from ..internal_log.coordinator_log import partition_for
from .transaction import ProducerIdentity

if TYPE_CHECKING:
    from ...peers.peers import Peers

PATIENCE_S = 30.0
VERSION_FOR_BROKERS = 5
"""Clients use versions up to 3; brokers use later ones among themselves."""

ASK_AGAIN = frozenset(
    {
        *UNREACHABLE,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
"""Errors that producers receive as NOT_ENOUGH_REPLICAS, which every producer version retries."""


class RemoteTransactions:
    """A client of the transaction coordinators on other brokers."""

    def __init__(self, metadata: MetadataStore, peers: Peers) -> None:
        self._metadata = metadata
        self._peers = peers

    def coordinator_of(self, transactional_id: str) -> int:
        """Return the broker that coordinates a transactional id, NO_LEADER if there is none now."""
        topic = self._metadata.topics.get(TRANSACTION_STATE)
        if topic is None:
            return NO_LEADER
        return topic.partitions[partition_for(transactional_id, len(topic.partitions))].leader

    def is_remote(self, transactional_id: str) -> bool:
        """Return whether another broker coordinates the transactional id."""
        return self.coordinator_of(transactional_id) != self._metadata.node_id

    async def join(
        self, transactional_id: str, producer: ProducerIdentity, partition: TopicPartition, *, verify_only: bool
    ) -> bool:
        """Ask the coordinator to add or verify a partition of the open transaction.

        Returns whether the transaction has the partition.
        Raises BrokerError: the coordinator's refusal; NOT_ENOUGH_REPLICAS if it cannot answer now.
        """
        request = AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id=transactional_id,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.epoch,
                    verify_only=verify_only,
                    topics=[AddPartitionsToTxnTopic(name=partition.topic, partitions=[partition.partition])],
                )
            ]
        )
        try:
            response = await self._peers.ask(
                self.coordinator_of(transactional_id),
                request,
                AddPartitionsToTxnResponse,
                timeout_s=PATIENCE_S,
                version=VERSION_FOR_BROKERS,
            )
            code = _outcome(response)
        except BrokerError as error:
            code = error.code
        if code in ASK_AGAIN:
            raise BrokerError(
                ErrorCode.NOT_ENOUGH_REPLICAS, f"the coordinator of {transactional_id} answers {code.name}"
            )
        if code is ErrorCode.TRANSACTION_ABORTABLE:
            return False
        if code is not ErrorCode.NONE:
            raise BrokerError(code)
        return True


def _outcome(response: AddPartitionsToTxnResponse) -> ErrorCode:
    """Return the error of the one partition in the request."""
    if response.error_code:
        return ErrorCode(response.error_code)
    return ErrorCode(
        next(
            partition.partition_error_code
            for transaction in response.results_by_transaction
            for topic in transaction.topic_results
            for partition in topic.results_by_partition
        )
    )
