"""Produce: batches are validated and appended as they were produced, whatever their format.

With acks=all the answer waits until all in-sync replicas have the records (Kafka: DelayedProduce).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ....protocol.records.batches import BatchView, read_batch
from ....protocol.records.compression import Codec
from ....protocol.records.plain_batch_cy import COMPRESSED_LIMIT_BYTES, check_plain_batch
from ....protocol.records.produced_cy import Produced, ProducedBatch
from ....protocol.records.validation import (
    FIRST_V2_PRODUCE_VERSION,
    FIRST_ZSTD_PRODUCE_VERSION,
    RecordValidationError,
    check_produce_version,
    validate,
)
from ....storage.log.partition_log import AppendResult
from ...coordinators.transactions.remote_transactions import ASK_AGAIN
from ...coordinators.transactions.transaction import ProducerIdentity
from ...monitoring.metrics import EXPECTED_PRODUCE_ERRORS
from ...replicas.partition import Partition
from ...server.outcome import Outcome, result_of
from ...server.pending import Pending, all_completed
from ...server.worker_threads import run_in_worker
from ..contract import RequestContext
from ..services import Services
from ..transaction_verification import TransactionSupport, join_transaction, must_join, transaction_support
from .leader_hints import hint_in_produce

logger = logging.getLogger(__name__)

# CPython 3.11 takes longer for a member of an enum than for a function call.
ZSTD, LZ4 = Codec.ZSTD, Codec.LZ4

ALL_IN_SYNC = -1
ACKS = (ALL_IN_SYNC, 0, 1)
ADMIN_CLIENT_ID = "__admin_client"
"""The client id that may write to internal topics (Kafka: AdminUtils.ADMIN_CLIENT_ID)."""
ERRORS_WITHOUT_LOG_START = EXPECTED_PRODUCE_ERRORS | {ErrorCode.NOT_ENOUGH_REPLICAS}
"""Errors for which Kafka does not report the log start offset (ReplicaManager.appendToLocalLog)."""


class Write:
    """A write of one partition in a request; ``answer`` is its answer once that is known."""

    __slots__ = ("answer", "batch", "first", "index", "partition", "produced", "records", "topic")

    def __init__(self, topic: str, data: PartitionProduceData, context: RequestContext) -> None:
        """Find the partition, and check a plain batch: the only kind in most requests, for which that is all."""
        self.topic = topic
        self.index = data.index
        self.records = memoryview(data.records or b"")
        self.answer: PartitionProduceResponse | None = None
        self.produced: Produced | None = None
        self.first: BatchView | None = None
        """The first batch of a write that is not plain; None also for malformed records, which are refused later."""
        self.batch: ProducedBatch | None = None
        """The checked batch of a plain write."""
        services, version = context.services, context.api_version
        self.partition = partition = services.partitions.find(topic, data.index)
        if partition is not None and version >= FIRST_V2_PRODUCE_VERSION and not partition.is_internal:
            self.batch = check_plain_batch(
                self.records,
                partition.append_rules,
                services.clock.now_ms(),
                ZSTD if version >= FIRST_ZSTD_PRODUCE_VERSION else LZ4,
            )
        if self.batch is None:
            with suppress(BrokerError):
                self.first = read_batch(self.records)

    @property
    def is_transactional(self) -> bool:
        """Whether the first batch belongs to a transaction."""
        return self.first is not None and self.first.is_transactional

    @property
    def is_large(self) -> bool:
        """Whether the check of the batch takes so long that a worker thread makes it."""
        return len(self.records) > COMPRESSED_LIMIT_BYTES and self.first is not None and self.first.is_compressed

    def joins(self, request: ProduceRequest, context: RequestContext) -> bool:
        """Return whether the write must be added to its transaction, or verified, before the append."""
        first, partition = self.first, self.partition
        if partition is None or first is None or not first.is_transactional or request.transactional_id is None:
            return False
        producer = ProducerIdentity(first.producer_id, first.producer_epoch)
        return must_join(context.services, partition, producer, transaction_support(context))

    def fail(self, error: BrokerError) -> PartitionProduceResponse:
        """Set and return the answer for an error."""
        self.answer = _failure(self.index, error, log_start_offset=-1)
        return self.answer


def handle_produce(request: ProduceRequest, context: RequestContext) -> Outcome[ProduceResponse | None]:
    """Append each partition's records; with acks=0 there is no answer, and an error closes the connection.

    A task is needed to ask the coordinator of a transaction, and to check a large compressed batch.
    """
    writes = []
    is_plain = True
    for topic in request.topic_data:
        of_topic = []
        for data in topic.partition_data:
            write = Write(topic.name, data, context)
            is_plain = is_plain and write.batch is not None
            of_topic.append(write)
        writes.append(of_topic)
    refusal = None if is_plain and request.acks in ACKS else _refusal_of_all(request, writes)
    if refusal is None and not is_plain:
        long = [
            write
            for of_topic in writes
            for write in of_topic
            if write.first is not None and (write.is_large or write.joins(request, context))
        ]
        if long:
            return _produce_in_task(request, writes, long, context)
    return _produce(request, writes, refusal, context)


def refused_append(error: Exception, partition: Partition, services: Services) -> ProduceResponse:
    """Return the response to a request with one partition whose append has raised ``error``, and count the failure."""
    failure = _append_failed(error, partition)
    services.metrics.count_produce_request(partition.topic, failure.error_code)
    return ProduceResponse(responses=[TopicProduceResponse(name=partition.topic, partition_responses=[failure])])


def unreplicated(partition: Partition, result: AppendResult, code: int, context: RequestContext) -> ProduceResponse:
    """Return the response to a request with one partition whose records were not replicated because of ``code``."""
    answer = PartitionProduceResponse(
        index=partition.index,
        error_code=code,
        base_offset=result.base_offset,
        log_append_time_ms=result.log_append_time_ms,
        log_start_offset=result.log_start_offset,
    )
    response = ProduceResponse(responses=[TopicProduceResponse(name=partition.topic, partition_responses=[answer])])
    hint_in_produce(response, context)
    return response


def _append_failed(error: Exception, partition: Partition) -> PartitionProduceResponse:
    """Return the answer for an exception of the validation or the append, and log one that is no BrokerError."""
    if not isinstance(error, BrokerError):
        logger.error("appending to %s-%d failed", partition.topic, partition.index, exc_info=error)
        return _failure(partition.index, BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR), log_start_offset=-1)
    has_log_start = error.code not in ERRORS_WITHOUT_LOG_START
    log_start_offset = partition.log.log_start_offset if has_log_start else -1
    return _failure(partition.index, error, log_start_offset=log_start_offset)


def _refusal_of_all(request: ProduceRequest, writes: list[list[Write]]) -> ErrorCode | None:
    """Return the error of the request as a whole, if there is one."""
    if request.transactional_id is None and any(write.is_transactional for of_topic in writes for write in of_topic):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if request.acks not in ACKS:
        return ErrorCode.INVALID_REQUIRED_ACKS
    return None


async def _produce_in_task(
    request: ProduceRequest, writes: list[list[Write]], long: list[Write], context: RequestContext
) -> ProduceResponse | None:
    for write in long:
        await _prepare(write, request, context)
    return await result_of(_produce(request, writes, None, context))


async def _prepare(write: Write, request: ProduceRequest, context: RequestContext) -> None:
    """Do the work for a write that takes long or asks other brokers."""
    partition = write.partition
    if partition is None:
        return
    try:
        _check_request(write, partition, request, context)
        if write.joins(request, context):
            await _join_transaction(write, partition, request, context)
    except BrokerError as error:
        write.fail(error)
        return
    if not write.is_large:
        return
    services = context.services
    check = partial(validate, write.records, partition.append_rules, now_ms=services.clock.now_ms())
    try:
        write.produced = await run_in_worker(check, limiter=services.validations)
    except Exception as error:
        write.answer = _append_failed(error, partition)


async def _join_transaction(
    write: Write, partition: Partition, request: ProduceRequest, context: RequestContext
) -> None:
    """Add a write to its transaction, or refuse it. Raises BrokerError.

    NOT_ENOUGH_REPLICAS stands for a coordinator that cannot answer: every producer version knows it as retriable.
    """
    assert write.first is not None
    assert request.transactional_id is not None
    producer = ProducerIdentity(write.first.producer_id, write.first.producer_epoch)
    support = transaction_support(context)
    try:
        await join_transaction(context.services, partition, request.transactional_id, producer, support)
    except BrokerError as error:
        is_early = error.code is ErrorCode.CONCURRENT_TRANSACTIONS and support is not TransactionSupport.V2
        if is_early or error.code in ASK_AGAIN:
            raise BrokerError(ErrorCode.NOT_ENOUGH_REPLICAS, error.message or error.code.name) from error
        raise


def _produce(
    request: ProduceRequest, writes: list[list[Write]], refusal: ErrorCode | None, context: RequestContext
) -> Outcome[ProduceResponse | None]:
    """Append the records, and return the response once all in-sync replicas have them if the client waits for that."""
    count_request = context.services.metrics.count_produce_request
    responses = []
    unreplicated: list[tuple[Pending[ErrorCode], PartitionProduceResponse]] = []
    failed = refusal is not None
    for topic, of_topic in zip(request.topic_data, writes, strict=True):
        answers = []
        for write in of_topic:
            answer = _append(write, request, refusal, context, unreplicated)
            failed = failed or answer.error_code != ErrorCode.NONE
            if refusal is None and answer.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                count_request(write.topic, answer.error_code)
            answers.append(answer)
        if answers:
            responses.append(TopicProduceResponse(name=topic.name, partition_responses=answers))
    if request.acks == 0:
        context.closing = failed
        return None
    response = ProduceResponse(responses=responses)
    if not unreplicated:
        if failed:
            hint_in_produce(response, context)
        return response
    return _delayed_produce(response, unreplicated, context)


def _delayed_produce(
    response: ProduceResponse,
    unreplicated: list[tuple[Pending[ErrorCode], PartitionProduceResponse]],
    context: RequestContext,
) -> Pending[ProduceResponse]:
    """Return the pending response: with the errors of writes that are not replicated in time (Kafka: DelayedProduce).

    It keeps no reference to the request, whose records are in the connection's buffer.
    """

    def finish(codes: Sequence[ErrorCode]) -> ProduceResponse:
        for (_, answer), code in zip(unreplicated, codes, strict=True):
            answer.error_code = code
        hint_in_produce(response, context)
        return response

    return all_completed([replicated for replicated, _ in unreplicated]).map(finish)


def _append(
    write: Write,
    request: ProduceRequest,
    refusal: ErrorCode | None,
    context: RequestContext,
    unreplicated: list[tuple[Pending[ErrorCode], PartitionProduceResponse]],
) -> PartitionProduceResponse:
    """Append the records of one partition and return its answer; replication to wait for goes to ``unreplicated``."""
    services, partition = context.services, write.partition
    if refusal is not None or partition is None:
        code = services.partitions.why_missing(write.topic, write.index) if refusal is None else refusal
        return write.fail(BrokerError(code))
    if write.answer is not None:
        return write.answer
    if write.batch is None or partition.role is not None:
        try:
            _check_request(write, partition, request, context)
        except BrokerError as error:
            return write.fail(error)
    try:
        produced = _checked(write, partition, context)
        if not produced.batches:
            return PartitionProduceResponse(index=partition.index, base_offset=-1, log_start_offset=-1)
        if produced.batches[0].codec and produced.data.obj is not write.records.obj:
            # No code recompresses batches today (KAFKA-527); this metric would reveal code that does.
            services.metrics.count_recompression(write.topic)
        result = partition.append(produced)
    except Exception as error:
        return _append_failed(error, partition)
    services.metrics.count_produced(write.topic, produced)
    answer = PartitionProduceResponse(
        index=partition.index,
        base_offset=result.base_offset,
        log_append_time_ms=result.log_append_time_ms,
        log_start_offset=result.log_start_offset,
    )
    if request.acks == ALL_IN_SYNC and not partition.is_replicated(result.last_offset):
        replicated = partition.replicated(result.last_offset, request.timeout_ms / 1000)
        unreplicated.append((replicated, answer))
    return answer


def _check_request(write: Write, partition: Partition, request: ProduceRequest, context: RequestContext) -> None:
    """Check the request before the append. Raises BrokerError."""
    if write.batch is None:
        check_produce_version(write.records, context.api_version)
        if partition.is_internal and context.client_id != ADMIN_CLIENT_ID:
            raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {partition.topic}")
    partition.check_leader()
    if request.acks == ALL_IN_SYNC:
        partition.check_in_sync()


def _checked(write: Write, partition: Partition, context: RequestContext) -> Produced:
    if write.batch is not None:
        return Produced(write.records, [write.batch])
    if write.produced is not None:
        return write.produced
    return validate(write.records, partition.append_rules, now_ms=context.services.clock.now_ms())


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


def uses_transactional_id(request: ProduceRequest) -> bool:
    """Return whether a request writes to the transaction of its transactional id."""
    return request.transactional_id is not None and writes_to_transaction(request)


def writes_to_transaction(request: ProduceRequest) -> bool:
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
