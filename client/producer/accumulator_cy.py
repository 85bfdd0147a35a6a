"""The records that are not yet sent: a queue of batches for each partition, and the choice of partition in `append`.

`append` is the hot path: it neither waits nor looks at other partitions. The sender asks `ready` which brokers have
batches to send, and takes these batches with `drain`. All functions are synchronous; `producer.py` waits for memory
and metadata.

Ordinary Python that is also compiled, as ``appending_cy.py`` is: ``accumulator_cy.pxd`` gives the C types.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from random import Random

import trio

try:
    import cython
except ImportError:
    from ...protocol.records import cython_stand_in as cython

if not cython.compiled:
    from .appending_cy import Delivery
    from .batch_cy import ProducerBatch
    from .partition_queue_cy import PartitionQueue, TopicQueues

from ...protocol.records.compression import Codec
from ..config import ProducerConfig
from .batch_cy import BatchState
from .buffer_memory import BufferMemory
from .compression_estimator import CompressionRatioEstimator
from .partitioner import StickyPartitioner, adaptive_weights
from .raw_batch import RawBatch
from .record_checks import Headers
from .size_limits import SizeLimits
from .splitting import split

ANY_PARTITION = -1
OPEN = BatchState.OPEN
ANSWER_TIME_STEP = 0.1
"""The weight of the last answer in the mean of a broker's answer times."""


class Readiness:
    """The brokers that the sender can send to now, and the time of the next check (trio's clock) if no event comes
    first.
    """

    __slots__ = ("check_again_at", "leaderless_topics", "nodes")

    def __init__(self) -> None:
        self.nodes: set[int] = set()
        self.leaderless_topics: set[str] = set()
        self.check_again_at = math.inf


class Accumulator:
    """The partition queues of all topics of one producer.

    Invariant: `_waiting` has exactly the queues that hold batches, in the order in which they were last drained (the
    queue drained longest ago first); `incomplete` has every batch that is neither delivered nor failed, queued or in
    flight.
    """

    def __init__(
        self,
        config: ProducerConfig,
        estimator: CompressionRatioEstimator,
        memory: BufferMemory,
        random: Random,
        clock: Callable[[], float] = trio.current_time,
    ) -> None:
        self.topics: dict[str, TopicQueues] = {}
        self.new_sticky: Callable[[int, Random], StickyPartitioner] = StickyPartitioner
        self.incomplete: dict[ProducerBatch, None] = {}
        self.estimator = estimator
        self.memory = memory
        self.limits = SizeLimits(config.metadata_max_age_ms / 1000, clock)
        self.on_split: Callable[[], None] = lambda: None
        """Called for each batch that is split."""
        self.flushes = 0
        """The number of pending `flush` calls; while it is not 0, batches do not wait for `linger.ms`."""
        self.last_begun_at = 0.0
        """The time at which the last batch was begun."""
        self._random = random
        self._clock = clock
        self._waiting: dict[PartitionQueue, None] = {}
        self._blocked_since: dict[int, float] = {}
        self._answer_seconds: dict[int | None, float] = {}
        """The damped mean of the times that each broker takes to answer a Produce request."""
        self._batch_size = config.batch_size
        self._codec = config.codec
        self._linger = config.linger_ms / 1000
        self._is_adaptive = config.partitioner_adaptive_partitioning_enable
        self._availability_timeout = config.partitioner_availability_timeout_ms / 1000
        self._keeps_order_by_waiting = config.max_in_flight_requests_per_connection == 1
        self._is_transactional = config.transactional_id is not None

    def update_topic(self, topic: str, leaders: Sequence[int | None]) -> TopicQueues:
        """Update a topic's metadata: the leader's node id of each partition."""
        queues = self.topics.get(topic)
        if queues is None:
            queues = self.topics[topic] = TopicQueues(topic, self.new_sticky(self._batch_size, self._random))
        queues.update(leaders)
        return queues

    def forget_topic(self, topic: str) -> bool:
        """Remove the queues of an evicted topic, unless they hold batches or batches are in flight.

        Returns whether the queues were removed.
        """
        queues = self.topics.get(topic)
        if queues is None or any(queue.batches or queue.under_way for queue in queues.queues):
            return False
        del self.topics[topic]
        self.limits.forget(topic)
        return True

    # --- appending ---

    def append(
        self,
        queues: TopicQueues,
        partition: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        size_bound: int,
    ) -> tuple[Delivery, bool, bool]:
        """Append one record whose `size_bound` bytes of memory are reserved; ANY_PARTITION lets the accumulator choose.

        Returns the delivery, whether a batch was started that the sender has not seen, and whether a batch was
        filled. Raises the errors of `OpenBatch.append`, without having added the record.
        """
        is_sticky = partition == ANY_PARTITION
        if is_sticky:
            partition = self._sticky_partition(queues, size_bound)
        queue = queues.queues[partition]
        batch = queue.open_batch
        is_begun = batch is None or (batch.room < size_bound and batch.record_count > 0)
        if batch is None or is_begun:
            self._seal_open(queue)
            batch = self._new_batch(queue)
            room_before = float(batch.size_limit)
        else:
            room_before = batch.room
        delivery = batch.append(timestamp, key, value, headers, size_bound)
        if is_begun:
            # Enqueue only now: `append` has raised for an invalid record, so that an empty batch is never in a queue.
            self._enqueue(queue, batch)
            queue.open_batch = batch
        if is_sticky:
            queues.sticky.produced_bytes += room_before - batch.room
        return delivery, is_begun, batch.room <= 0 or (is_begun and len(queue.batches) > 1)

    def append_raw(self, queue: PartitionQueue, raw: RawBatch, *, keeps_producer: bool) -> Delivery:
        """Append a complete batch whose memory is reserved. Returns the delivery of its first record."""
        batch = ProducerBatch.from_raw(
            queue.topic,
            queue.partition,
            raw,
            self._clock(),
            keeps_producer=keeps_producer,
            is_transactional=self._is_transactional,
        )
        batch.reserved_bytes = len(raw.payload)
        self._seal_open(queue)
        self._enqueue(queue, batch)
        return Delivery(batch, 0, batch.max_timestamp)

    def _new_batch(self, queue: PartitionQueue) -> ProducerBatch:
        ratio = self.estimator.ratio(queue.topic, self._codec) if self._codec is not Codec.NONE else 1.0
        limit = self.limits.configured(queue.topic) if self.limits.are_known else None
        self.last_begun_at = self._clock()
        return ProducerBatch(
            queue.topic,
            queue.partition,
            codec=self._codec,
            ratio=ratio,
            size_limit=min(self._batch_size, limit or self._batch_size),
            created_at=self.last_begun_at,
        )

    def _enqueue(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        queue.batches.append(batch)
        self._waiting[queue] = None
        self.incomplete[batch] = None

    def _seal_open(self, queue: PartitionQueue) -> None:
        if queue.open_batch is not None:
            self._seal(queue, queue.open_batch)

    def _seal(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Close a batch and release the memory that compression has saved."""
        queue.open_batch = None
        batch.seal(self.estimator, is_transactional=self._is_transactional)
        saved = batch.reserved_bytes - len(batch.payload)
        if saved > 0:
            batch.reserved_bytes -= saved
            self.memory.release(saved)

    # --- the sticky partition (KIP-794) ---

    def _sticky_partition(self, queues: TopicQueues, size_bound: int) -> int:
        sticky = queues.sticky
        partition = sticky.partition
        if partition == 0 and len(queues.queues) == 1:
            sticky.produced_bytes = 0.0
            return 0
        if partition >= 0:
            batch = queues.queues[partition].open_batch
            fits_open_batch = batch is not None and batch.room >= size_bound
            if fits_open_batch and sticky.produced_bytes < sticky.finish_limit_bytes:
                return partition
            growth = size_bound if batch is None else size_bound * batch.growth_factor
            if not sticky.is_due(growth, fits_open_batch):
                return partition
        partitions: Sequence[int] = queues.available or range(len(queues.queues))
        if not self._is_adaptive or len(partitions) == 1:
            return sticky.switch(partitions)
        if self._availability_timeout > 0:
            partitions = self._reachable(queues, partitions) or partitions
        candidates = [queues.queues[partition] for partition in partitions]
        return sticky.switch(
            partitions,
            adaptive_weights(
                [self._queued_batches(queue) for queue in candidates],
                [self._answer_seconds.get(queue.leader, 0.0) for queue in candidates],
            ),
        )

    def _queued_batches(self, queue: PartitionQueue) -> float:
        """Return about the bytes in a queue in units of `batch.size`: only its last batch may be less than full."""
        if not queue.batches:
            return 0.0
        full_count = len(queue.batches) - 1
        return full_count + min(queue.batches[full_count].estimated_size / max(self._batch_size, 1), 1.0)

    def node_answered(self, node: int, seconds: float) -> None:
        """Note the time that a broker took to answer a Produce request."""
        known = self._answer_seconds.get(node)
        self._answer_seconds[node] = seconds if known is None else known + (seconds - known) * ANSWER_TIME_STEP

    def _reachable(self, queues: TopicQueues, partitions: Iterable[int]) -> list[int]:
        """Return the partitions whose broker has accepted ready batches within
        `partitioner.availability.timeout.ms`.
        """
        now = self._clock()
        late = {node for node, since in self._blocked_since.items() if now - since > self._availability_timeout}
        return [p for p in partitions if queues.queues[p].leader not in late]

    def node_blocked(self, node: int, now: float) -> None:
        """Note that a batch is ready for a broker that cannot accept a request now."""
        self._blocked_since.setdefault(node, now)

    def nodes_left_out(self) -> list[int]:
        """Return the brokers that unkeyed records may avoid now or soon; an empty list without the timeout."""
        return list(self._blocked_since) if self._availability_timeout > 0 else []

    def node_took(self, node: int) -> None:
        """Note that a broker accepts requests again."""
        self._blocked_since.pop(node, None)

    # --- draining ---

    def ready(self, now: float) -> Readiness:
        """Scan all queues that hold batches once, and return the brokers to send to (Kafka's
        RecordAccumulator.ready).
        """
        readiness = Readiness()
        hurry = self.flushes > 0 or bool(self.memory.waiting)
        for queue in self._waiting:
            head = queue.batches[0]
            if queue.leader is None:
                readiness.leaderless_topics.add(queue.topic)
            elif queue.leader in readiness.nodes or (self._keeps_order_by_waiting and queue.under_way):
                continue
            else:
                due_at = self._due_at(queue, head, hurry)
                if due_at <= now:
                    readiness.nodes.add(queue.leader)
                else:
                    readiness.check_again_at = min(readiness.check_again_at, due_at)
        return readiness

    def _due_at(self, queue: PartitionQueue, head: ProducerBatch, hurry: bool) -> float:
        if head.attempts:
            return head.created_at if _has_new_leader(queue, head) else head.retry_at
        if hurry or len(queue.batches) > 1 or head.is_full:
            return head.created_at
        return head.created_at + self._linger

    def drain(
        self, node: int, now: float, max_bytes: int, may_send: Callable[[PartitionQueue, ProducerBatch], bool]
    ) -> list[tuple[PartitionQueue, ProducerBatch]]:
        """Take the first batch of each partition of the broker, seal it and return these batches: up to `max_bytes`,
        but at least one.
        """
        taken: list[tuple[PartitionQueue, ProducerBatch]] = []
        size = 0
        for queue in list(self._waiting):
            if queue.leader != node or (self._keeps_order_by_waiting and queue.under_way):
                continue
            batch = queue.batches[0]
            is_backing_off = batch.attempts and batch.retry_at > now and not _has_new_leader(queue, batch)
            if is_backing_off or not may_send(queue, batch):
                continue
            if taken and size + batch.estimated_size > max_bytes:
                break
            if batch.state is OPEN:
                self._seal(queue, batch)
            if self._needs_split(batch):
                self.split(queue, batch)
                batch = queue.batches[0]
            queue.batches.popleft()
            queue.under_way.append(batch)
            # Moving to the end of the order shares requests that are limited by max.request.size fairly.
            del self._waiting[queue]
            if queue.batches:
                self._waiting[queue] = None
            size += batch.estimated_size
            taken.append((queue, batch))
        return taken

    # --- after the answer ---

    def requeue(self, queue: PartitionQueue, batch: ProducerBatch, retry_at: float) -> None:
        """Put a batch back that must be sent again: at the front, or in order among batches with sequence numbers."""
        queue.under_way.remove(batch)
        batch.back_to_queue(retry_at)
        queue.batches.insert(queue.sequence.place_among(batch, queue.batches), batch)
        self._waiting[queue] = None

    def _needs_split(self, batch: ProducerBatch) -> bool:
        """Return whether the topic's limit is known to be too small for a batch that was never sent.

        A batch that was sent may have been stored: only unchanged would the broker recognise it.
        """
        return (
            batch.attempts == 0
            and batch.record_count > 1
            and not batch.is_raw
            and self.limits.are_known
            and self.limits.is_too_large(batch.topic, len(batch.payload))
        )

    def split(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Replace a batch that is too large by parts that the topic accepts (KIP-126)."""
        if batch in queue.under_way:
            queue.under_way.remove(batch)
        else:
            queue.batches.remove(batch)
        size = max(batch.sent_bytes, len(batch.payload))
        parts = split(batch, self.limits.part_limit(batch.topic, size), self.estimator)
        queue.sequence.replaced(batch, parts)
        place = queue.sequence.place_among(parts[0], queue.batches)
        for offset, part in enumerate(parts):
            queue.batches.insert(place + offset, part)
        # The parts replace the batch at its place: `expired` relies on the order of age.
        self.incomplete = {new: None for old in self.incomplete for new in (parts if old is batch else (old,))}
        self._waiting[queue] = None
        self.on_split()

    def complete(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Remove a batch that is delivered or failed from its queue and from `incomplete`, and release its memory."""
        if batch in queue.under_way:
            queue.under_way.remove(batch)
        elif batch in queue.batches:
            queue.batches.remove(batch)
            if queue.open_batch is batch:
                queue.open_batch = None
            if not queue.batches:
                self._waiting.pop(queue, None)
        self.incomplete.pop(batch, None)
        self.memory.release(batch.reserved_bytes)
        batch.reserved_bytes = 0

    def queue_of(self, batch: ProducerBatch) -> PartitionQueue:
        """Return the queue of the batch's partition."""
        return self.topics[batch.topic].queues[batch.partition]

    def expired(self, now: float, delivery_timeout: float) -> list[ProducerBatch]:
        """Return the incomplete batches older than `delivery_timeout` seconds.

        `incomplete` is nearly in order of age.
        """
        late = []
        for batch in self.incomplete:
            if now - batch.created_at >= delivery_timeout:
                late.append(batch)
            elif not batch.attempts:
                break
        return late


def _has_new_leader(queue: PartitionQueue, batch: ProducerBatch) -> bool:
    """Return whether the partition's leader is another broker than the last attempt was sent to: then no back-off is
    needed.

    KIP-951, Kafka's RecordAccumulator.shouldBackoff: the back-off protects a broker that has just refused, not
    another one.
    """
    return batch.sent_to is not None and queue.leader is not None and queue.leader != batch.sent_to
