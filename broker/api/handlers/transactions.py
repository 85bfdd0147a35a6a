"""Transactions: AddPartitionsToTxn, AddOffsetsToTxn, EndTxn.

Clients of versions that lack PRODUCER_FENCED get INVALID_PRODUCER_EPOCH instead (KIP-588).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.internal_topics import GROUP_METADATA, is_internal
from ....protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ....protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from ....protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ....storage.disk.paths import TopicPartition
from ...coordinators.transactions.coordinator import TransactionCoordinator
from ...coordinators.transactions.transaction import ProducerIdentity
from ..contract import RequestContext

FIRST_BATCHED_VERSION = 4
FIRST_FENCING_VERSION = 2
FIRST_BUMPING_VERSION = 5
"""EndTxn of transactions V2 (KIP-890)."""


def _as_told(code: ErrorCode, api_version: int) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED and api_version < FIRST_FENCING_VERSION:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


async def handle_add_partitions_to_txn(
    request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse:
    """Add partitions to transactions; for each transaction either all of its partitions or none."""
    if context.api_version < FIRST_BATCHED_VERSION:
        only = AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_add_partitions(only, context))
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id, topic_results=_add_partitions(transaction, context)
            )
            for transaction in request.transactions
        ]
    )


def _add_partitions(
    transaction: AddPartitionsToTxnTransaction, context: RequestContext
) -> list[AddPartitionsToTxnTopicResult]:
    partitions = [TopicPartition(topic.name, index) for topic in transaction.topics for index in topic.partitions]
    producer = ProducerIdentity(transaction.producer_id, transaction.producer_epoch)
    coordinator = context.services.transactions
    errors = {partition: error for partition in partitions if (error := _refusal(partition, context)) is not None}
    if errors:
        errors = {partition: errors.get(partition, ErrorCode.OPERATION_NOT_ATTEMPTED) for partition in partitions}
    else:
        try:
            if transaction.verify_only:
                errors = _verify(coordinator, transaction.transactional_id, producer, partitions)
            else:
                coordinator.add_partitions(transaction.transactional_id, producer, partitions)
        except BrokerError as error:
            errors = dict.fromkeys(partitions, _as_told(error.code, context.api_version))
    return _results(transaction.topics, errors)


def _refusal(partition: TopicPartition, context: RequestContext) -> ErrorCode | None:
    is_from_broker = context.api_version >= FIRST_BATCHED_VERSION
    if is_internal(partition.topic) and not is_from_broker:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if not context.services.metadata.has_partition(*partition):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return None


def _verify(
    coordinator: TransactionCoordinator,
    transactional_id: str,
    producer: ProducerIdentity,
    partitions: Collection[TopicPartition],
) -> dict[TopicPartition, ErrorCode]:
    """Return an error for each of ``partitions`` that is not in the open transaction (KIP-890)."""
    return {
        partition: ErrorCode.TRANSACTION_ABORTABLE
        for partition in partitions
        if not coordinator.holds_partition(transactional_id, producer, partition)
    }


def _results(
    topics: Sequence[AddPartitionsToTxnTopic], errors: dict[TopicPartition, ErrorCode]
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index,
                    partition_error_code=errors.get(TopicPartition(topic.name, index), ErrorCode.NONE),
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


async def handle_add_offsets_to_txn(
    request: AddOffsetsToTxnRequest, context: RequestContext
) -> AddOffsetsToTxnResponse:
    """Add a group's partition of `__consumer_offsets` to a transaction."""
    services = context.services
    producer = ProducerIdentity(request.producer_id, request.producer_epoch)
    try:
        partition = TopicPartition(GROUP_METADATA, services.groups.partition_of(request.group_id))
        services.transactions.add_partitions(request.transactional_id, producer, [partition])
    except BrokerError as error:
        return AddOffsetsToTxnResponse(error_code=_as_told(error.code, context.api_version))
    return AddOffsetsToTxnResponse()


async def handle_end_txn(request: EndTxnRequest, context: RequestContext) -> EndTxnResponse:
    """Commit or abort a transaction."""
    producer = ProducerIdentity(request.producer_id, request.producer_epoch)
    coordinator = context.services.transactions
    try:
        if context.api_version >= FIRST_BUMPING_VERSION:
            following = coordinator.end_v2(request.transactional_id, producer, commit=request.committed)
            return EndTxnResponse(producer_id=following.producer_id, producer_epoch=following.epoch)
        coordinator.end(request.transactional_id, producer, commit=request.committed)
    except BrokerError as error:
        return EndTxnResponse(error_code=_as_told(error.code, context.api_version))
    return EndTxnResponse()
