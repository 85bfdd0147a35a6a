"""Produce: batches are validated and appended as they were produced, whatever their format.

With acks=all the answer waits until all in-sync replicas have the records (Kafka: DelayedProduce).
"""

from __future__ import annotations

import logging
from functools import partial
from typing import NamedTuple

import trio

from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.internal_topics import is_internal
from ....protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ....protocol.records.batches import read_batch
from ....protocol.records.plain_batch import COMPRESSED_LIMIT_BYTES
from ....protocol.records.produced import Produced
from ....protocol.records.validation import RecordValidationError, check_produce_version, validate
from ...coordinators.transactions.remote_transactions import ASK_AGAIN
from ...coordinators.transactions.transaction import ProducerIdentity
from ...monitoring.metrics import EXPECTED_PRODUCE_ERRORS
from ...replicas.partition import Partition
from ...server.worker_threads import run_in_worker
from ..contract import RequestContext
from ..transaction_verification import TransactionSupport, join_transaction, transaction_support
from .leader_hints import hint_in_produce

logger = logging.getLogger(__name__)

ALL_IN_SYNC = -1
ACKS = (ALL_IN_SYNC, 0, 1)
ADMIN_CLIENT_ID = "__admin_client"
"""The client id that may write to internal topics (Kafka: AdminUtils.ADMIN_CLIENT_ID)."""
ERRORS_WITHOUT_LOG_START = EXPECTED_PRODUCE_ERRORS | {ErrorCode.NOT_ENOUGH_REPLICAS}
"""Errors for which Kafka does not report the log start offset (ReplicaManager.appendToLocalLog)."""


class Unreplicated(NamedTuple):
    """An append whose last record must reach all in-sync replicas before the answer may report success."""

    partition: Partition
    last_offset: int
    answer: PartitionProduceResponse


async def handle_produce(request: ProduceRequest, context: RequestContext) -> ProduceResponse | None:
    """Append each partition's records; with acks=0 there is no answer, and an error closes the connection."""
    refusal = _refusal_of_all(request)
    responses = []
    unreplicated: list[Unreplicated] = []
    failed = refusal is not None
    for topic in request.topic_data:
        answers = []
        for data in topic.partition_data:
            answer = await _produce_to_partition(topic.name, data, request, context, refusal, unreplicated)
            failed = failed or answer.error_code != ErrorCode.NONE
            if refusal is None and answer.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                context.services.metrics.count_produce_request(topic.name, answer.error_code)
            answers.append(answer)
        responses.append(TopicProduceResponse(name=topic.name, partition_responses=answers))
    if request.acks == 0:
        context.closing = failed
        return None
    await _wait_for_followers(unreplicated, request.timeout_ms / 1000)
    response = ProduceResponse(responses=[topic for topic in responses if topic.partition_responses])
    if failed or unreplicated:
        hint_in_produce(response, context)
    return response


def _refusal_of_all(request: ProduceRequest) -> ErrorCode | None:
    """Return the error of the request as a whole, if there is one."""
    if request.transactional_id is None and _has_transactional_batch(request):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if request.acks not in ACKS:
        return ErrorCode.INVALID_REQUIRED_ACKS
    return None


async def _produce_to_partition(
    topic: str,
    data: PartitionProduceData,
    request: ProduceRequest,
    context: RequestContext,
    refusal: ErrorCode | None,
    unreplicated: list[Unreplicated],
) -> PartitionProduceResponse:
    partitions = context.services.partitions
    partition = partitions.find(topic, data.index)
    if refusal is not None or partition is None:
        code = partitions.why_missing(topic, data.index) if refusal is None else refusal
        return _failure(data.index, BrokerError(code), log_start_offset=-1)
    records = memoryview(data.records or b"")
    try:
        await _check_request(partition, records, request, context)
    except BrokerError as error:
        return _failure(data.index, error, log_start_offset=-1)
    try:
        produced = await _validated(partition, records, context)
        if not produced.batches:
            return PartitionProduceResponse(index=partition.index, base_offset=-1, log_start_offset=-1)
        if produced.batches[0].codec and produced.data.obj is not records.obj:
            # No code recompresses batches today (KAFKA-527); this metric would reveal code that does.
            context.services.metrics.count_recompression(topic)
        result = partition.append(produced)
    except BrokerError as error:
        has_log_start = error.code not in ERRORS_WITHOUT_LOG_START
        return _failure(data.index, error, log_start_offset=partition.log.log_start_offset if has_log_start else -1)
    except Exception:
        logger.exception("appending to %s-%d failed", topic, data.index)
        return _failure(data.index, BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR), log_start_offset=-1)
    context.services.metrics.count_produced(topic, produced)
    answer = PartitionProduceResponse(
        index=partition.index,
        base_offset=result.base_offset,
        log_append_time_ms=result.log_append_time_ms,
        log_start_offset=result.log_start_offset,
    )
    if request.acks == ALL_IN_SYNC and not partition.is_replicated(result.last_offset):
        unreplicated.append(Unreplicated(partition, result.last_offset, answer))
    return answer


async def _wait_for_followers(unreplicated: list[Unreplicated], timeout_s: float) -> None:
    """Wait for the in-sync replicas of each append, and set the error of appends that miss the deadline."""
    deadline = trio.current_time() + timeout_s
    for partition, offset, answer in unreplicated:
        try:
            await partition.replicated(offset, max(0.0, deadline - trio.current_time()))
        except BrokerError as error:
            answer.error_code, answer.error_message = error.code, error.message


async def _check_request(
    partition: Partition, records: memoryview, request: ProduceRequest, context: RequestContext
) -> None:
    """Check the request before the append. Raises BrokerError."""
    check_produce_version(records, context.api_version)
    if is_internal(partition.topic) and context.client_id != ADMIN_CLIENT_ID:
        raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {partition.topic}")
    partition.check_leader()
    if request.acks == ALL_IN_SYNC:
        partition.check_in_sync()
    if request.transactional_id is not None:
        await check_transaction(partition, records, request.transactional_id, context)


async def check_transaction(
    partition: Partition, records: memoryview, transactional_id: str, context: RequestContext
) -> None:
    """Add a batch to its transaction, or refuse it. Raises BrokerError.

    NOT_ENOUGH_REPLICAS stands for a coordinator that cannot answer: every producer version knows it as retriable.
    """
    batch = read_batch(records)
    if batch is None or not batch.is_transactional:
        return
    producer = ProducerIdentity(batch.producer_id, batch.producer_epoch)
    support = transaction_support(context)
    try:
        await join_transaction(context.services, partition, transactional_id, producer, support)
    except BrokerError as error:
        is_early = error.code is ErrorCode.CONCURRENT_TRANSACTIONS and support is not TransactionSupport.V2
        if is_early or error.code in ASK_AGAIN:
            raise BrokerError(ErrorCode.NOT_ENOUGH_REPLICAS, error.message or error.code.name) from error
        raise


async def _validated(partition: Partition, records: memoryview, context: RequestContext) -> Produced:
    rules = partition.append_rules
    now_ms = context.services.clock.now_ms()
    if len(records) > COMPRESSED_LIMIT_BYTES:
        first = read_batch(records)
        if first is not None and first.is_compressed:
            return await run_in_worker(
                partial(validate, records, rules, now_ms=now_ms), limiter=context.services.validations
            )
    return validate(records, rules, now_ms=now_ms)


def _failure(index: int, error: BrokerError, *, log_start_offset: int) -> PartitionProduceResponse:
    response = PartitionProduceResponse(
        index=index,
        error_code=error.code,
        base_offset=-1,
        log_start_offset=log_start_offset,
        error_message=error.message,
    )
    if isinstance(error, RecordValidationError):
        response.record_errors = [
            BatchIndexAndErrorMessage(batch_index=fault.batch_index, batch_index_error_message=fault.message)
            for fault in error.record_errors
        ]
    return response


def _has_transactional_batch(request: ProduceRequest) -> bool:
    """Return whether any partition's first batch is transactional; malformed records are refused later."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            try:
                first = read_batch(data.records or b"")
            except BrokerError:
                continue
            if first is not None and first.is_transactional:
                return True
    return False
