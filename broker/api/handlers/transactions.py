"""Transactions: AddPartitionsToTxn, AddOffsetsToTxn, EndTxn.

Clients of versions that lack PRODUCER_FENCED get INVALID_PRODUCER_EPOCH instead (KIP-588).
"""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence
from typing import Protocol

from ....protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType
from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.internal_topics import GROUP_METADATA, TRANSACTION_STATE, is_internal
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
from ....protocol.topic_partition import TopicPartition
from ...coordinators.internal_log.unreplicated_writes import InternalKey
from ...coordinators.transactions.coordinator import TransactionCoordinator
from ...coordinators.transactions.transaction import ProducerIdentity
from ..contract import RequestContext
from ..rights import EVERYTHING

FIRST_BATCHED_VERSION = 4
FIRST_FENCING_VERSION = 2
FIRST_BUMPING_VERSION = 5
"""EndTxn of transactions V2 (KIP-890)."""


class OfOneTransaction(Protocol):
    """A request for one transactional id, or for none."""

    @property
    def transactional_id(self) -> str | None: ...


def transaction_of(request: OfOneTransaction) -> list[InternalKey]:
    """Return the transactional id that a request is for; see `Api.waits_for_replicas`."""
    return [InternalKey(TRANSACTION_STATE, request.transactional_id)] if request.transactional_id else []


def transactions_of(request: AddPartitionsToTxnRequest) -> list[InternalKey]:
    """Return the transactional ids that a request of any version adds partitions to."""
    ids = [request.v3_and_below_transactional_id, *(each.transactional_id for each in request.transactions)]
    return [InternalKey(TRANSACTION_STATE, transactional_id) for transactional_id in ids if transactional_id]


def _as_told(code: ErrorCode, api_version: int) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED and api_version < FIRST_FENCING_VERSION:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def handle_add_partitions_to_txn(
    request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse:
    """Add partitions to transactions; for each transaction either all of its partitions or none."""
    if context.api_version >= FIRST_BATCHED_VERSION:
        context.authorize(AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER, CLUSTER_NAME)
    else:
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
    errors = _refusals(transaction.transactional_id, partitions, context)
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


def _refusals(
    transactional_id: str, partitions: Sequence[TopicPartition], context: RequestContext
) -> dict[TopicPartition, ErrorCode]:
    """Return the errors of partitions that cannot be added; other brokers may add any partition that exists."""
    errors: dict[TopicPartition, ErrorCode] = {}
    writable: Container[str] = EVERYTHING
    is_from_client = context.api_version < FIRST_BATCHED_VERSION
    if is_from_client:
        if not context.may(AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, transactional_id):
            return dict.fromkeys(partitions, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        names = (partition.topic for partition in partitions if not is_internal(partition.topic))
        writable = context.authorized(AclOperation.WRITE, AclResourceType.TOPIC, names)
    for partition in partitions:
        if partition.topic not in writable or (is_from_client and is_internal(partition.topic)):
            errors[partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif not context.services.metadata.has_partition(*partition):
            errors[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return errors


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


def handle_add_offsets_to_txn(request: AddOffsetsToTxnRequest, context: RequestContext) -> AddOffsetsToTxnResponse:
    """Add a group's partition of `__consumer_offsets` to a transaction."""
    services = context.services
    producer = ProducerIdentity(request.producer_id, request.producer_epoch)
    try:
        partition = TopicPartition(GROUP_METADATA, services.groups.partition_of(request.group_id))
        services.transactions.add_partitions(request.transactional_id, producer, [partition])
    except BrokerError as error:
        return AddOffsetsToTxnResponse(error_code=_as_told(error.code, context.api_version))
    return AddOffsetsToTxnResponse()


def handle_end_txn(request: EndTxnRequest, context: RequestContext) -> EndTxnResponse:
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
