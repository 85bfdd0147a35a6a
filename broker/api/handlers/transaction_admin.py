"""Inspection and repair of transactions by an administrator.

These are DescribeTransactions, ListTransactions, DescribeProducers, and WriteTxnMarkers, with which Kafka's
``kafka-transactions.sh abort`` ends a transaction that hangs in one partition (KIP-664).
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from ....protocol.acls import AclOperation, AclResourceType
from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.internal_topics import TRANSACTION_STATE
from ....protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from ....protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
)
from ....protocol.messages.describe_transactions import TransactionState as DescribedTransaction
from ....protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ....protocol.messages.list_transactions import TransactionState as ListedTransaction
from ....protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ....protocol.topic_partition import TopicPartition
from ...coordinators.internal_log.unreplicated_writes import InternalKey
from ...coordinators.transactions.transaction import STATE_NAMED, Transaction, TransactionState
from ...metadata.topic_names import why_invalid
from ...server.pending import Pending
from ..contract import RequestContext


def transactions_of(request: DescribeTransactionsRequest) -> list[InternalKey]:
    """Return the transactional ids that a request describes; see `Api.waits_for_replicas`."""
    return [InternalKey(TRANSACTION_STATE, transactional_id) for transactional_id in request.transactional_ids]


def handle_describe_transactions(
    request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    """Describe the state, producer and partitions of the requested transactional ids."""
    return DescribeTransactionsResponse(
        transaction_states=[_described(transactional_id, context) for transactional_id in request.transactional_ids]
    )


def _described(transactional_id: str, context: RequestContext) -> DescribedTransaction:
    try:
        context.authorize(AclOperation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID, transactional_id)
        transaction = context.services.transactions.describe(transactional_id)
    except BrokerError as error:
        return DescribedTransaction(error_code=error.code, transactional_id=transactional_id)
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(transaction.partitions):
        topics.setdefault(topic, []).append(partition)
    allowed = context.authorized(AclOperation.DESCRIBE, AclResourceType.TOPIC, topics)
    return DescribedTransaction(
        transactional_id=transactional_id,
        transaction_state=transaction.state.kafka_name,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_timestamp,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[
            TopicData(topic=topic, partitions=partitions) for topic, partitions in topics.items() if topic in allowed
        ],
    )


def handle_list_transactions(request: ListTransactionsRequest, context: RequestContext) -> ListTransactionsResponse:
    """List the transactions that pass all filters; an unknown state filter is reported, not refused."""
    services = context.services
    states = {STATE_NAMED[name] for name in request.state_filters if name in STATE_NAMED}
    unknown = [name for name in request.state_filters if name not in STATE_NAMED]
    if request.state_filters and not states:
        return ListTransactionsResponse(unknown_state_filters=unknown)
    now_ms = services.clock.now_ms()

    def passes(transaction: Transaction) -> bool:
        return (
            transaction.state is not TransactionState.DEAD
            and (not request.producer_id_filters or transaction.producer_id in request.producer_id_filters)
            and (not states or transaction.state in states)
            and (request.duration_filter < 0 or now_ms - transaction.start_timestamp > request.duration_filter)
        )

    found = [transaction for transaction in services.transactions if passes(transaction)]
    names = (transaction.transactional_id for transaction in found)
    allowed = context.authorized(AclOperation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID, names)
    return ListTransactionsResponse(
        unknown_state_filters=unknown,
        transaction_states=[
            ListedTransaction(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=transaction.state.kafka_name,
            )
            for transaction in found
            if transaction.transactional_id in allowed
        ],
    )


def handle_describe_producers(request: DescribeProducersRequest, context: RequestContext) -> DescribeProducersResponse:
    """Describe the active producers of each partition's log."""
    names = (topic.name for topic in request.topics if why_invalid(topic.name) is None)
    allowed = context.authorized(AclOperation.READ, AclResourceType.TOPIC, names)
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[_producers_of(topic.name, index, allowed, context) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _producers_of(topic: str, index: int, allowed: Container[str], context: RequestContext) -> PartitionResponse:
    if why_invalid(topic) is not None:
        return PartitionResponse(partition_index=index, error_code=ErrorCode.INVALID_TOPIC_EXCEPTION)
    if topic not in allowed:
        return PartitionResponse(partition_index=index, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    try:
        partition = context.services.partitions.led(topic, index)
    except BrokerError as error:
        return PartitionResponse(partition_index=index, error_code=error.code)
    return PartitionResponse(
        partition_index=index,
        active_producers=[
            ProducerState(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.transaction_first_offset,
            )
            for producer in partition.log.producers.producers.values()
        ],
    )


def handle_write_txn_markers(
    request: WriteTxnMarkersRequest, context: RequestContext
) -> Pending[WriteTxnMarkersResponse]:
    """Write the requested markers without a coordinator's decision; each partition has its own outcome."""
    services = context.services
    timeout_s = services.config.offsets_commit_timeout_ms / 1000
    written = services.transaction_markers.write_all(request.markers, timeout_s)
    return written.map(
        lambda outcomes: WriteTxnMarkersResponse(
            markers=[_outcome(marker, codes) for marker, codes in zip(request.markers, outcomes, strict=True)]
        )
    )


def _outcome(marker: WritableTxnMarker, codes: Mapping[TopicPartition, ErrorCode]) -> WritableTxnMarkerResult:
    return WritableTxnMarkerResult(
        producer_id=marker.producer_id,
        topics=[
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    WritableTxnMarkerPartitionResult(
                        partition_index=index,
                        error_code=codes[TopicPartition(topic.name, index)],
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in marker.topics
        ],
    )
