"""The task that drains the accumulator: it finds the brokers to send to, sends, and handles the answers.

It is Kafka's Sender as a trio task: up to `max.in.flight.requests.per.connection` Produce requests are in flight to
each broker, and their answers are handled as they arrive.
"""

from __future__ import annotations

import logging
import math
from functools import partial
from random import Random

import trio

from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ...protocol.messages.produce import PartitionProduceResponse
from ..config import ProducerConfig
from ..errors import STALE_METADATA_CODES, ClientError, ConnectionLostError, DeadlineExceededError
from ..metrics import Metrics
from ..wire.backoff import backoff_seconds
from ..wire.cluster import Cluster
from ..wire.retry import retry
from .accumulator_cy import Accumulator
from .batch_cy import ProducerBatch
from .batch_sender_cy import BatchSender
from .oversized_batches import OversizedBatches
from .partition_queue_cy import PartitionQueue
from .producer_metadata import ProducerMetadata
from .transactions import TransactionManager

logger = logging.getLogger(__name__)

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


class Sender(BatchSender):
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
        super().__init__(cluster, accumulator, metadata, config, metrics, transactions)
        metadata.on_news = self.wake
        self._dialling: set[int] = set()
        self._is_asking_for_producer = False
        self._is_adding_partitions = False
        self._random = Random()
        self._oversized = OversizedBatches(cluster, accumulator, config, self.wake)
        accumulator.on_split = partial(metrics.count, "batch-split")

    async def run(self) -> None:
        """Send batches until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._oversized.run)
            while True:
                # One scope for many steps: opening a scope costs as much as a small batch.
                with trio.CancelScope() as alarm:
                    alarm_at = math.inf
                    while True:
                        self._news = trio.Event()
                        check_at = self._step(trio.current_time())
                        if check_at < alarm_at:
                            # A later time is not set: one step too many costs less than each change of the alarm.
                            alarm.deadline = alarm_at = check_at
                        await self._news.wait()

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
        except (BrokerError, ClientError) as error:
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

    # --- answers with errors ---

    def _refused(self, queue: PartitionQueue, batch: ProducerBatch, answer: PartitionProduceResponse) -> None:
        code = ErrorCode(answer.error_code)
        if code in TOO_LARGE_CODES and batch.record_count > 1 and not batch.is_raw:
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

    def _expire(self, late: list[ProducerBatch], now: float) -> None:
        """Fail batches that were not delivered within `delivery.timeout.ms`, queued or in flight."""
        for batch in late:
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
