"""The task that drains the accumulator: it finds the brokers to send to, sends, and handles the answers.

It is Kafka's Sender as a trio task: up to `max.in.flight.requests.per.connection` Produce requests are in flight to
each broker, and their answers are handled as they arrive.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from functools import partial
from random import Random

import trio

from ...protocol.apis import ApiKey
from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ...protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ...protocol.topic_partition import AnyTopicPartition
from ..config import ProducerConfig
from ..errors import STALE_METADATA_CODES, ConnectionLostError, DeadlineExceededError
from ..metrics import Metrics
from ..wire.backoff import backoff_seconds
from ..wire.cluster import Cluster
from ..wire.connection import Connection
from ..wire.leader_hints import LeaderHints
from ..wire.pending_answer import PendingAnswer
from ..wire.retry import retry
from .accumulator_cy import Accumulator
from .batch_cy import BatchState, ProducerBatch
from .oversized_batches import OversizedBatches
from .partition_queue_cy import PartitionQueue
from .producer_metadata import ProducerMetadata
from .transactions import TransactionManager

logger = logging.getLogger(__name__)

FIRST_VERSION_WITH_FORMAT_V2 = 3
TOO_LARGE_CODES = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
LOST_SEQUENCE_CODES = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
"""Refusals of a sequence number. The records were not appended, so they may be sent again with a new epoch."""

UNKNOWN_OUTCOME_CODES = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""Error codes after which the records may be in the log nevertheless."""

Drained = Sequence[tuple[PartitionQueue, ProducerBatch]]


class Sender:
    """The task that sends the producer's batches; events such as a full batch wake it."""

    def __init__(
        self,
        cluster: Cluster,
        accumulator: Accumulator,
        metadata: ProducerMetadata,
        config: ProducerConfig,
        metrics: Metrics,
        transactions: TransactionManager | None,
    ) -> None:
        self._cluster = cluster
        self._accumulator = accumulator
        self._metadata = metadata
        metadata.on_news = self.wake
        self._config = config
        self._metrics = metrics
        self._transactions = transactions
        self._is_idempotent = config.is_idempotent
        self._max_in_flight = config.max_in_flight_requests_per_connection
        self._watches_availability = config.partitioner_availability_timeout_ms > 0
        self._delivery_timeout = config.delivery_timeout_ms / 1000
        self._in_flight_counts: dict[int, int] = {}
        self._dialling: set[int] = set()
        self._producer: tuple[int, int] | None = None
        self._is_asking_for_producer = False
        self._is_adding_partitions = False
        self._news = trio.Event()
        self._random = Random()
        self._oversized = OversizedBatches(cluster, accumulator, config, self.wake)
        accumulator.on_split = partial(metrics.count, "batch-split")

    def wake(self) -> None:
        """Check for sendable batches again: a batch was started or filled, `flush` was called..."""
        self._news.set()

    def has_room(self, node: int | None) -> bool:
        """Return whether fewer requests are in flight to this broker than may be; True for an unknown broker."""
        return node is None or self._in_flight_counts.get(node, 0) < self._max_in_flight

    def can_use(self, leader: int | None) -> bool:
        """Return whether a batch that is begun or filled now may change what the sender does before the next answer.

        It does not while all requests that may be in flight to its broker are in flight: the next answer wakes the
        sender. But with `partitioner.availability.timeout.ms` the sender notes since when such a broker is behind.
        """
        return self._watches_availability or self.has_room(leader)

    async def run(self) -> None:
        """Send batches until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._oversized.run)
            while True:
                # One scope for many steps: opening a scope costs as much as a small batch.
                with trio.CancelScope() as alarm:
                    while True:
                        self._news = trio.Event()
                        alarm.deadline = self._step(trio.current_time())
                        await self._news.wait()

    def _step(self, now: float) -> float:
        """Send all batches that can be sent now; return the time of the next check if no event comes first."""
        self._expire(now)
        self._prepare_identity()
        while True:
            readiness = self._accumulator.ready(now)
            progress = [self._send_to(node, now) for node in readiness.nodes]
            if not any(progress):
                break
        self._look_after_left_out(readiness.nodes)
        for topic in readiness.leaderless_topics:
            self._metadata.request_update(topic)
        oldest = next(iter(self._accumulator.incomplete), None)
        expiry = oldest.created_at + self._delivery_timeout if oldest is not None else math.inf
        return max(now, min(readiness.check_again_at, expiry))

    def _send_to(self, node: int, now: float) -> bool:
        """Start one request to a broker that batches are ready for, if the broker can accept one.

        Returns whether it did.
        """
        connection = self._cluster.established(node)
        if connection is None or not self.has_room(node):
            self._accumulator.node_blocked(node, now)
            self._dial_if_needed(node)
            return False
        self._accumulator.node_took(node)
        drained = self._accumulator.drain(node, now, self._config.max_request_size, self._may_send)
        if not drained:
            return False
        for queue, batch in drained:
            if batch.keeps_producer:
                queue.sequence.track(batch)
            elif self._is_idempotent and not batch.is_legacy:
                queue.sequence.assign(batch)
            batch.sent(node)
        outcomes = [self._start(node, connection, alike) for alike in _by_request(drained)]
        return all(outcomes)

    def _look_after_left_out(self, ready_nodes: set[int]) -> None:
        """Find out when brokers that unkeyed records avoid (KIP-794) accept requests again.

        No batch may be queued for such a broker: earlier batches have expired, and new records avoid it. So its
        connection is made again without a record that requires it.
        """
        for node in self._accumulator.nodes_left_out():
            if node in ready_nodes:
                continue
            if node not in self._cluster.brokers or (
                self.has_room(node) and self._cluster.established(node) is not None
            ):
                self._accumulator.node_took(node)
            else:
                self._dial_if_needed(node)

    def _dial_if_needed(self, node: int) -> None:
        if self._cluster.established(node) is None and node not in self._dialling:
            self._dialling.add(node)
            self._nursery.start_soon(self._dial, node)

    def _start(self, node: int, connection: Connection, drained: Drained) -> bool:
        self._in_flight_counts[node] = self._in_flight_counts.get(node, 0) + 1
        try:
            self._submit(node, connection, drained)
        except (ConnectionLostError, BrokerError) as failure:
            self._settle_all(node, drained, {}, _lost(failure))
            return False
        return True

    async def _dial(self, node: int) -> None:
        try:
            await self._cluster.connection(node)
        except ConnectionLostError as failure:
            logger.info("%s", failure)
            for topic, queues in self._accumulator.topics.items():
                if any(queue.leader == node and queue.batches for queue in queues.queues):
                    self._metadata.request_update(topic)
            await trio.sleep(self._config.reconnect_backoff_ms / 1000)
        finally:
            self._dialling.discard(node)
            self.wake()

    # --- permission to send ---

    def _may_send(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        """Return whether sequence numbers and transaction allow this batch, the first of its queue, to be sent now."""
        if batch.keeps_producer:
            return queue.sequence.may_send(batch)
        if not self._is_idempotent:
            return True
        if batch.is_legacy or any(before.is_legacy for before in queue.under_way):
            # Without sequence numbers the order is kept only by waiting.
            return not queue.under_way
        identity = self._identity()
        if identity is None:
            return False
        if self._transactions is not None and not self._transactions.is_added(queue.topic, queue.partition):
            return False
        sequence = queue.sequence
        is_of_this_producer = sequence.producer_id == identity[0] and sequence.producer_epoch >= identity[1]
        if sequence.needs_new_producer and not sequence.is_under_way:
            self._producer = None
            sequence.producer_id = -1
            return False
        if not is_of_this_producer:
            if sequence.is_under_way:
                return False
            sequence.adopt(*identity)
        return sequence.may_send(batch)

    def _identity(self) -> tuple[int, int] | None:
        if self._transactions is None:
            return self._producer
        return self._transactions.producer_id, self._transactions.producer_epoch

    def _prepare_identity(self) -> None:
        """Request a producer id, or add partitions to the transaction, if batches wait for either."""
        if not self._is_idempotent or not self._accumulator.incomplete:
            return
        if self._transactions is None:
            if self._producer is None and not self._is_asking_for_producer:
                self._is_asking_for_producer = True
                self._nursery.start_soon(self._ask_for_producer)
        elif self._transactions.has_new_partitions() and not self._is_adding_partitions:
            self._is_adding_partitions = True
            self._nursery.start_soon(self._add_partitions, self._transactions)

    async def _ask_for_producer(self) -> None:
        async def attempt() -> InitProducerIdResponse:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
            answer = await self._cluster.request_any(request, InitProducerIdResponse)
            if answer.error_code:
                raise BrokerError(ErrorCode(answer.error_code), "InitProducerId")
            return answer

        try:
            answer = await retry(
                attempt, self._config, timeout_ms=self._config.delivery_timeout_ms, what="InitProducerId"
            )
            self._producer = (answer.producer_id, answer.producer_epoch)
        except (BrokerError, DeadlineExceededError) as error:
            if self._may_do_without(error):
                logger.warning(
                    "the brokers have no idempotence (Kafka before 0.11): a retried batch may be stored twice"
                )
                self._is_idempotent = False
                return
            # Nothing can be sent without a producer id: the records fail with this error.
            for batch in list(self._accumulator.incomplete):
                self._fail(self._accumulator.queue_of(batch), batch, error)
        finally:
            self._is_asking_for_producer = False
            self.wake()

    def _may_do_without(self, error: Exception) -> bool:
        """Return whether idempotence was only the default, and the brokers are too old for it."""
        is_too_old = isinstance(error, BrokerError) and error.code is ErrorCode.UNSUPPORTED_VERSION
        return is_too_old and "enable_idempotence" not in self._config.explicit

    async def _add_partitions(self, transactions: TransactionManager) -> None:
        try:
            await transactions.add_partitions()
            if transactions.error is not None:
                self.abandon(transactions.error)
        finally:
            self._is_adding_partitions = False
            self.wake()

    # --- one request ---

    def _submit(self, node: int, connection: Connection, drained: Drained) -> None:
        """Submit the Produce request. A callback handles the answer where it arrives: no task waits for it."""
        is_legacy = drained[0][1].is_legacy
        newest = FIRST_VERSION_WITH_FORMAT_V2 - 1 if is_legacy else None
        version = connection.versions.version(ApiKey.PRODUCE, newest=newest)
        topics: dict[str, TopicProduceData] = {}
        for queue, batch in drained:
            topic = topics.setdefault(queue.topic, TopicProduceData(name=queue.topic))
            is_readable = is_legacy or version >= FIRST_VERSION_WITH_FORMAT_V2
            payload = batch.payload if is_readable else batch.legacy_payload()
            batch.sent_bytes = len(payload)
            topic.partition_data.append(PartitionProduceData(index=queue.partition, records=memoryview(payload)))
        request = ProduceRequest(
            acks=self._config.required_acks,
            timeout_ms=self._config.request_timeout_ms,
            topic_data=list(topics.values()),
        )
        if version >= FIRST_VERSION_WITH_FORMAT_V2:
            request.transactional_id = self._config.transactional_id
        self._metrics.count("gregor.batch-send", len(drained))
        if self._config.required_acks == 0:
            connection.submit_without_answer(request, version, partial(self._written, node, connection, drained))
        else:
            on_arrival = partial(self._arrived, node, trio.current_time(), drained)
            connection.submit(request, ProduceResponse, version=version, on_arrival=on_arrival)

    def _written(self, node: int, connection: Connection, drained: Drained) -> None:
        if connection.is_closed:
            self._settle_all(node, drained, {}, _lost(ConnectionLostError(connection.close_reason)))
        else:
            unanswered = PartitionProduceResponse(base_offset=-1)
            self._settle_all(node, drained, {}, unanswered)

    def _arrived(self, node: int, sent_at: float, drained: Drained, pending: PendingAnswer[ProduceResponse]) -> None:
        answers: dict[AnyTopicPartition, PartitionProduceResponse] = {}
        missing = PartitionProduceResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR, error_message="no answer for it")
        try:
            answer = pending.result()
        except ConnectionLostError as failure:
            missing = _lost(failure)
        else:
            for topic in answer.responses:
                for part in topic.partition_responses:
                    answers[topic.name, part.index] = part
            self._accumulator.node_answered(node, trio.current_time() - sent_at)
            self._take_leader_hints(answer)
        self._settle_all(node, drained, answers, missing)

    def _take_leader_hints(self, answer: ProduceResponse) -> None:
        """Store the current leaders of refused partitions (KIP-951), so that their batches are sent to these leaders at
        once.
        """
        hints = LeaderHints(self._cluster, answer.node_endpoints)
        for topic in answer.responses:
            for part in topic.partition_responses:
                if hints.take(topic.name, part.index, part.error_code, part.current_leader):
                    self._accumulator.update_topic(topic.name, self._cluster.topics[topic.name].leaders)

    def _settle_all(
        self,
        node: int,
        drained: Drained,
        answers: Mapping[AnyTopicPartition, PartitionProduceResponse],
        missing: PartitionProduceResponse,
    ) -> None:
        """Handle the answer of each partition of a request; `missing` stands for the answer of a partition without
        one.
        """
        self._in_flight_counts[node] -= 1
        for queue, batch in drained:
            self._settle(queue, batch, answers.get((queue.topic, queue.partition), missing))
        self.wake()

    # --- answers ---

    def _settle(self, queue: PartitionQueue, batch: ProducerBatch, answer: PartitionProduceResponse) -> None:
        if batch.state is not BatchState.IN_FLIGHT:
            # The batch expired or was abandoned while the request was in flight.
            return
        code = ErrorCode(answer.error_code)
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._deliver(queue, batch, answer.base_offset if code is ErrorCode.NONE else -1, answer.log_append_time_ms)
        elif code in TOO_LARGE_CODES and batch.record_count > 1 and not batch.is_raw:
            self._oversized.refused(queue, batch)
        elif self._is_out_of_turn(queue, batch, code):
            # The batch before this one is being retried or was split; this batch follows as soon as that one is done,
            # without back-off.
            self._accumulator.requeue(queue, batch, trio.current_time())
        elif self._may_retry(queue, batch, code):
            self._retry(queue, batch)
        else:
            message = answer.error_message or f"{queue.topic}-{queue.partition}"
            record_errors: dict[int, Exception] = {
                item.batch_index: BrokerError(code, item.batch_index_error_message) for item in answer.record_errors
            }
            self._fail(queue, batch, BrokerError(code, message), record_errors)
        if code in STALE_METADATA_CODES or code is ErrorCode.NETWORK_EXCEPTION:
            self._metadata.request_update(queue.topic)

    def _deliver(self, queue: PartitionQueue, batch: ProducerBatch, base_offset: int, append_time: int) -> None:
        self._metrics.count("record-send", batch.record_count)
        self._accumulator.limits.accepted(queue.topic, batch.sent_bytes)
        queue.sequence.delivered(batch)
        self._accumulator.complete(queue, batch)
        batch.delivered(base_offset, append_time)

    def _is_out_of_turn(self, queue: PartitionQueue, batch: ProducerBatch, code: ErrorCode) -> bool:
        """Return whether a batch was refused only because a batch before it has not been appended yet."""
        return (
            code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            and batch in queue.sequence.tracked
            and not queue.sequence.is_first(batch)
        )

    def _may_retry(self, queue: PartitionQueue, batch: ProducerBatch, code: ErrorCode) -> bool:
        """Return whether sending the same batch again may succeed; request a new epoch if the retry requires one."""
        if batch.attempts > self._config.retries:
            return False
        if batch.is_legacy and self._is_idempotent and code in UNKNOWN_OUTCOME_CODES:
            return False
        if batch.has_sequence and code in LOST_SEQUENCE_CODES:
            if self._transactions is not None or batch.keeps_producer:
                return False
            queue.sequence.restart_wanted = True
            return True
        return code.retriable

    def _retry(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        self._metrics.count("record-retry", batch.record_count)
        wait = backoff_seconds(
            batch.attempts, self._config.retry_backoff_ms, self._config.retry_backoff_max_ms, self._random
        )
        self._accumulator.requeue(queue, batch, trio.current_time() + wait)

    def _fail(
        self,
        queue: PartitionQueue,
        batch: ProducerBatch,
        error: Exception,
        record_errors: dict[int, Exception] | None = None,
    ) -> None:
        self._metrics.count("record-error", batch.record_count)
        queue.sequence.given_up(batch)
        self._accumulator.complete(queue, batch)
        batch.failed(error, record_errors)
        if self._transactions is not None:
            self._transactions.fail(error)

    def _expire(self, now: float) -> None:
        """Fail the batches that were not delivered within `delivery.timeout.ms`, queued or in flight."""
        for batch in self._accumulator.expired(now, self._delivery_timeout):
            waited_ms = round((now - batch.created_at) * 1000)
            error = DeadlineExceededError(
                f"{batch.record_count} record(s) for {batch.topic}-{batch.partition} not delivered in {waited_ms} ms"
            )
            self._fail(self._accumulator.queue_of(batch), batch, error)

    def abandon(self, error: Exception, *, only_unsent: bool = False) -> None:
        """Fail all records with `error`; with `only_unsent` only the records that were never sent."""
        for batch in list(self._accumulator.incomplete):
            if not only_unsent or batch.attempts == 0:
                self._fail(self._accumulator.queue_of(batch), batch, error)


def _by_request(drained: Drained) -> list[Drained]:
    """Split the batches by the Produce version they require: formats v0 and v1 require an older version than v2."""
    halves = [[entry for entry in drained if entry[1].is_legacy is is_legacy] for is_legacy in (False, True)]
    return [half for half in halves if half]


def _lost(failure: Exception) -> PartitionProduceResponse:
    """Return the answer that stands for a partition of a request that got no answer."""
    if isinstance(failure, BrokerError):
        return PartitionProduceResponse(error_code=failure.code, error_message=failure.message)
    return PartitionProduceResponse(error_code=ErrorCode.NETWORK_EXCEPTION, error_message=str(failure))
