"""The work of the producer's sender for each batch: which batches are sent, their requests, and the usual answers.

Ordinary Python that is also compiled, as ``appending_cy.py`` is: ``batch_sender_cy.pxd`` gives the C types. What
happens less often than once a batch is in ``sender.py``, which defines the methods that are abstract here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import trio

try:
    import cython
except ImportError:
    from ...protocol.records import cython_stand_in as cython

if not cython.compiled:
    from ...protocol.plain_produce_cy import PlainProduce, decode_plain_answer, plain_pieces
    from .accumulator_cy import Accumulator
    from .batch_cy import ProducerBatch
    from .partition_queue_cy import PartitionQueue

from ...protocol.apis import ApiKey
from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ...protocol.topic_partition import AnyTopicPartition
from ..config import ProducerConfig
from ..errors import ConnectionLostError
from ..metrics import Metrics
from ..wire.leader_hints import LeaderHints
from .batch_cy import BatchState

if TYPE_CHECKING:
    from ..wire.cluster import Cluster
    from ..wire.connection import Connection
    from ..wire.pending_answer import PendingAnswer
    from .producer_metadata import ProducerMetadata
    from .transactions import TransactionManager

    Drained = Sequence[tuple[PartitionQueue, ProducerBatch]]

PRODUCE = ApiKey.PRODUCE

IN_FLIGHT = BatchState.IN_FLIGHT
FIRST_VERSION_WITH_FORMAT_V2 = 3


class BatchSender:
    """A sender as far as batches know it that are sent and acknowledged without an error."""

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
        self._config = config
        self._metrics = metrics
        self._sent_batches = metrics.counter("gregor.batch-send")
        self._sent_records = metrics.counter("record-send")
        self._transactions = transactions
        self._is_idempotent = config.is_idempotent
        self._max_in_flight = config.max_in_flight_requests_per_connection
        self._max_request_size = config.max_request_size
        self._acks = config.required_acks
        self._timeout_ms = config.request_timeout_ms
        self._watches_availability = config.partitioner_availability_timeout_ms > 0
        self._delivery_timeout = config.delivery_timeout_ms / 1000
        self._in_flight_counts: dict[int, int] = {}
        self._producer: tuple[int, int] | None = None
        self._unflushed: list[Connection] = []
        """The connections that requests were submitted to in this step."""
        self._news = trio.Event()

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

    def _step(self, now: float) -> float:
        """Send all batches that can be sent now; return the time of the next check if no event comes first."""
        accumulator = self._accumulator
        late = accumulator.expired(now, self._delivery_timeout)
        if late:
            self._expire(late, now)
        if accumulator.incomplete and (self._transactions is not None or self._producer is None):
            self._prepare_identity()
        while True:
            readiness = accumulator.ready(now)
            has_sent = False
            for node in readiness.nodes:
                has_sent = self._send_to(node, now) or has_sent
            if not has_sent:
                break
        for connection in self._unflushed:
            connection.flush()
        self._unflushed.clear()
        if self._watches_availability:
            self._look_after_left_out(readiness.nodes)
        for topic in readiness.leaderless_topics:
            self._metadata.request_update(topic)
        next_check = readiness.check_again_at
        for oldest in accumulator.incomplete:
            next_check = min(next_check, oldest.created_at + self._delivery_timeout)
            break
        return max(now, next_check)

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
        drained = self._accumulator.drain(node, now, self._max_request_size, self._may_send)
        if not drained:
            return False
        for queue, batch in drained:
            if batch.keeps_producer:
                queue.sequence.track(batch)
            elif self._is_idempotent and not batch.is_legacy:
                queue.sequence.assign(batch)
            batch.sent(node)
        if len(drained) == 1:
            return self._start(node, connection, drained, now)
        outcomes = [self._start(node, connection, alike, now) for alike in _by_request(drained)]
        return all(outcomes)

    def _start(self, node: int, connection: Connection, drained: Drained, now: float) -> bool:
        self._in_flight_counts[node] = self._in_flight_counts.get(node, 0) + 1
        try:
            self._submit(node, connection, drained, now)
        except (ConnectionLostError, BrokerError) as failure:
            self._settle_all(node, drained, {}, _lost(failure))
            return False
        return True

    # --- permission to send ---

    def _may_send(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        """Return whether sequence numbers and transaction allow this batch, the first of its queue, to be sent now."""
        if batch.keeps_producer:
            return queue.sequence.may_send(batch)
        if not self._is_idempotent:
            return True
        is_legacy = batch.is_legacy
        for before in queue.under_way:
            is_legacy = is_legacy or before.is_legacy
        if is_legacy:
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
            sequence.adopt(identity[0], identity[1])
        return sequence.may_send(batch)

    def _identity(self) -> tuple[int, int] | None:
        if self._transactions is None:
            return self._producer
        return self._transactions.producer_id, self._transactions.producer_epoch

    # --- one request ---

    def _submit(self, node: int, connection: Connection, drained: Drained, now: float) -> None:
        """Submit the Produce request. A callback handles the answer where it arrives: no task waits for it."""
        self._sent_batches.add(len(drained), now)
        queue, batch = drained[0]
        is_legacy = batch.is_legacy
        newest = FIRST_VERSION_WITH_FORMAT_V2 - 1 if is_legacy else None
        version = connection.versions.version(PRODUCE, newest=newest)
        if len(drained) == 1 and not is_legacy and self._acks != 0 and self._config.transactional_id is None:
            records = memoryview(batch.payload)
            request = PlainProduce(self._acks, self._timeout_ms, queue.topic, queue.partition, records)
            pieces = plain_pieces(request, version)
            if pieces is not None:
                batch.sent_bytes = len(batch.payload)
                arrive = partial(self._plain_arrived, node, now, queue, batch)
                connection.submit_encoded(PRODUCE, version, pieces, ProduceResponse, arrive, now)
                if connection not in self._unflushed:
                    self._unflushed.append(connection)
                return
        declared = self._declared(drained, version, is_legacy)
        if self._acks == 0:
            connection.submit_without_answer(declared, version, partial(self._written, node, connection, drained))
        else:
            on_arrival = partial(self._arrived, node, now, drained)
            connection.submit(declared, ProduceResponse, version=version, on_arrival=on_arrival)

    def _declared(self, drained: Drained, version: int, is_legacy: bool) -> ProduceRequest:
        """Return the request with these batches, of one format."""
        topics: dict[str, TopicProduceData] = {}
        for queue, batch in drained:
            topic = topics.setdefault(queue.topic, TopicProduceData(name=queue.topic))
            is_readable = is_legacy or version >= FIRST_VERSION_WITH_FORMAT_V2
            payload = batch.payload if is_readable else batch.legacy_payload()
            batch.sent_bytes = len(payload)
            topic.partition_data.append(PartitionProduceData(index=queue.partition, records=memoryview(payload)))
        request = ProduceRequest(acks=self._acks, timeout_ms=self._timeout_ms, topic_data=list(topics.values()))
        if version >= FIRST_VERSION_WITH_FORMAT_V2:
            request.transactional_id = self._config.transactional_id
        return request

    def _written(self, node: int, connection: Connection, drained: Drained) -> None:
        if connection.is_closed:
            self._settle_all(node, drained, {}, _lost(ConnectionLostError(connection.close_reason)))
        else:
            unanswered = PartitionProduceResponse(base_offset=-1)
            self._settle_all(node, drained, {}, unanswered)

    def _plain_arrived(
        self,
        node: int,
        sent_at: float,
        queue: PartitionQueue,
        batch: ProducerBatch,
        pending: PendingAnswer[ProduceResponse],
    ) -> None:
        """Handle the answer to the request with a single batch."""
        body = pending.body
        answer = None if body is None else decode_plain_answer(body, pending.version, queue.topic, queue.partition)
        if answer is None:
            self._arrived(node, sent_at, [(queue, batch)], pending)
            return
        now = trio.current_time()
        self._accumulator.node_answered(node, now - sent_at)
        self._in_flight_counts[node] -= 1
        # A batch in another state has expired or was abandoned while the request was in flight.
        if batch.state is IN_FLIGHT:
            self._deliver(queue, batch, answer.base_offset, answer.log_append_time_ms, now)
        self.wake()

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
        if batch.state is not IN_FLIGHT:
            # The batch expired or was abandoned while the request was in flight.
            return
        code = answer.error_code
        if code == ErrorCode.NONE:
            self._deliver(queue, batch, answer.base_offset, answer.log_append_time_ms, trio.current_time())
        elif code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._deliver(queue, batch, -1, answer.log_append_time_ms, trio.current_time())
        else:
            self._refused(queue, batch, answer)

    def _deliver(
        self, queue: PartitionQueue, batch: ProducerBatch, base_offset: int, append_time: int, now: float
    ) -> None:
        self._sent_records.add(batch.record_count, now)
        if self._accumulator.limits.are_known:
            self._accumulator.limits.accepted(queue.topic, batch.sent_bytes)
        queue.sequence.delivered(batch)
        self._accumulator.complete(queue, batch)
        batch.delivered(base_offset, append_time, now)

    # --- defined by the sender ---

    @abstractmethod
    def _expire(self, late: list[ProducerBatch], now: float) -> None:
        """Fail batches that were not delivered within `delivery.timeout.ms`."""

    @abstractmethod
    def _prepare_identity(self) -> None:
        """Request a producer id, or add partitions to the transaction, if batches wait for either."""

    @abstractmethod
    def _look_after_left_out(self, ready_nodes: set[int]) -> None:
        """Find out when brokers that unkeyed records avoid accept requests again."""

    @abstractmethod
    def _dial_if_needed(self, node: int) -> None:
        """Connect to a broker unless it is connected."""

    @abstractmethod
    def _refused(self, queue: PartitionQueue, batch: ProducerBatch, answer: PartitionProduceResponse) -> None:
        """Handle an answer with an error."""


def _by_request(drained: Drained) -> list[Drained]:
    """Split the batches by the Produce version they require: formats v0 and v1 require an older version than v2."""
    halves = [[entry for entry in drained if entry[1].is_legacy is is_legacy] for is_legacy in (False, True)]
    return [half for half in halves if half]


def _lost(failure: Exception) -> PartitionProduceResponse:
    """Return the answer that stands for a partition of a request that got no answer."""
    if isinstance(failure, BrokerError):
        return PartitionProduceResponse(error_code=failure.code, error_message=failure.message)
    return PartitionProduceResponse(error_code=ErrorCode.NETWORK_EXCEPTION, error_message=str(failure))
