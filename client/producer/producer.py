"""The producer. The states of a record:

    send() ── topic unknown ──> waits for metadata ┐ max.block.ms for both, then DeadlineExceededError
       │ ── no memory free ───> waits for memory   ┘
       v
    accumulated in a batch (its Delivery is returned here)
       │ batch full, linger.ms over, flush(), memory short
       v
    sealed ──> in flight ── acknowledged ──────────────────────────> delivered
       ^  ^        │ │ └─── MESSAGE_TOO_LARGE: split into batches, sealed again
       │  └────────┘ └───── refused for good ──────────────────────> failed
       │ retriable refusal, lost connection (retry.backoff.ms)         ^
       └── delivery.timeout.ms over, scope left, transaction aborted ──┘

No record is lost without an exception from its delivery. A record can fail after it was written if the answer was lost
and `delivery.timeout.ms` passed before another answer arrived. A record can be written twice only without idempotence.
Batch states: `batch_cy.py`; choice of partition: `partitioner.py`; requests and answers: `sender.py`.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from random import Random
from types import TracebackType
from typing import Self

import trio

from ...protocol.errors import BrokerError
from ...protocol.records.record import Buffer
from ...protocol.topic_partition import AnyTopicPartition
from ..config import ProducerConfig
from ..errors import (
    AbandonedError,
    ClientError,
    ClosedError,
    DeadlineExceededError,
    UnknownTopicError,
)
from ..lifetime import BackgroundTasks
from ..metrics import Metrics, MetricValues
from ..wire.cluster import Cluster, PartitionMetadata
from ..wire.group_offsets import CommittedOffset, GroupMetadata
from .accumulator_cy import Accumulator
from .appending_cy import Delivery
from .buffer_memory import BufferMemory
from .compression_estimator import CompressionRatioEstimator
from .partition_queue_cy import TopicQueues
from .partitioner import partition_for_key
from .producer_metadata import ProducerMetadata
from .raw_batch import read_raw
from .record_checks import check_partition, check_topic
from .sender import Sender
from .sending_cy import ANY_PARTITION, RECORDS_BETWEEN_YIELDS, SendingProducer, wall_clock_ms
from .sequences_cy import PartitionSequence
from .transactions import TransactionManager, TransactionState

CLOSE_GRACE_SECONDS = 5.0


class Producer(SendingProducer):
    """A client that sends records::

        async with Producer("localhost:9092", linger_ms=5) as producer:
            delivery = await producer.send("topic", b"value", key=b"key")
            print((await delivery).offset)

    Keywords are Kafka's producer keys with underscores (`ProducerConfig`). Leaving the scope normally waits until all
    records are delivered or failed; an exception abandons the records not sent yet, unless `flush_on_error`.
    """

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        *,
        flush_on_error: bool = False,
        clock_ms: Callable[[], int] = wall_clock_ms,
        **config: object,
    ) -> None:
        self.config = ProducerConfig.from_properties(config)
        self._metrics = Metrics("producer", self.config.client_id)
        self._cluster = Cluster(bootstrap_servers, self.config, self._metrics)
        memory = BufferMemory(self.config.buffer_memory)
        memory.measure(self._metrics)
        accumulator = Accumulator(self.config, CompressionRatioEstimator(), memory, Random())
        metadata = ProducerMetadata(self._cluster, accumulator, self.config, self._metrics)
        transactions = (
            TransactionManager(self._cluster, self.config) if self.config.transactional_id is not None else None
        )
        super().__init__(self.config, clock_ms, memory, accumulator, metadata, transactions)
        self._sender = Sender(self._cluster, accumulator, metadata, self.config, self._metrics, transactions)
        self._background = BackgroundTasks()
        self._flush_on_error = flush_on_error

    async def __aenter__(self) -> Self:
        await self._background.open(self._start_tasks)
        self._is_open = True
        return self

    async def _start_tasks(self, nursery: trio.Nursery) -> None:
        await nursery.start(self._cluster.run)
        nursery.start_soon(self._metadata.run)
        nursery.start_soon(self._sender.run)
        if self._transactions is not None:
            await self._transactions.initialize()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # From here on `send` refuses records: those appended during the flush would be abandoned after it.
        self._is_open = False
        try:
            if error is None or (self._flush_on_error and not isinstance(error, trio.Cancelled)):
                await self.flush()
        finally:
            self._memory.close()
            self._metadata.close()
            self._sender.abandon(AbandonedError("the producer was closed before the record was delivered"))
            await self._background.close()

    # --- sending ---

    def _note_batch(self, leader: int | None, *, is_filled: bool) -> None:
        """Let the sender see a batch that was begun or filled, if it can send to the batch's broker now."""
        if not self._sender.can_use(leader):
            return
        self._sender.wake()
        if is_filled:
            # Not at each new batch: a caller that sends in a loop would have every record sent alone.
            self._sends_since_yield = RECORDS_BETWEEN_YIELDS

    async def send_batch(self, topic: str, partition: int, raw: Buffer, *, keeps_producer: bool = False) -> Delivery:
        """Send one complete record batch with its records as they are; return the delivery of its first record.

        In format v2 the header gets this producer's identity and sequence number (and so a new CRC), and the batch
        takes part in the producer's idempotence and transaction. With `keeps_producer` the header is not changed
        either: the batch has a producer id and sequence of its own, and the caller is responsible for the order of
        such batches. Formats v0 and v1 have no such fields (several uncompressed messages may be one `raw`): they
        require Produce v2 or older, and an idempotent producer fails them instead of sending again records that the
        broker may have stored already. A batch that a broker refuses as too large is not split.

        The call is a checkpoint as `send` is, and raises the same errors; also ValueError if `raw` is not one batch,
        and BrokerError CORRUPT_MESSAGE if its CRC is wrong: a new CRC would hide the damage.
        """
        partition = check_partition(partition)
        if not isinstance(raw, bytes | bytearray | memoryview):
            raise TypeError(f"a batch must be bytes, bytearray or memoryview, not {type(raw).__name__}")
        payload = bytes(raw)
        described = read_raw(payload)
        await self._yield()
        self._check_open()
        queues = await self._admit(topic, partition, len(payload))
        try:
            delivery = self._accumulator.append_raw(queues.queues[partition], described, keeps_producer=keeps_producer)
        except BaseException:
            self._memory.release(len(payload))
            raise
        if self._transactions is not None:
            self._transactions.note_partition(topic, partition)
        self._metadata.use(topic, trio.current_time())
        self._sender.wake()
        return delivery

    def _check_entered(self) -> None:
        if not self._is_open:
            raise ClosedError("the producer is not open")

    def _check_open(self) -> None:
        self._check_entered()
        if self._transactions is not None:
            self._transactions.check_open()

    async def _yield(self) -> None:
        """Let other tasks run."""
        self._sends_since_yield = 0
        await trio.lowlevel.checkpoint()

    def _partition_for(self, queues: TopicQueues, key: bytes | None, value: bytes | None) -> int:
        """Return the partition of a record that was sent without one, or ANY_PARTITION.

        Raises TypeError or ValueError if a custom partitioner returned an invalid partition.
        """
        if self._partitioner is not None:
            partition = check_partition(self._partitioner(queues.topic, key, value, len(queues.queues)))
            if partition >= len(queues.queues):
                raise ValueError(f"the partitioner chose {partition} of {len(queues.queues)} partitions")
            return partition
        if key is not None and not self._ignores_keys:
            return partition_for_key(key, len(queues.queues))
        return ANY_PARTITION

    async def _admit(self, topic: str, partition: int | None, size_bytes: int) -> TopicQueues:
        """Wait until the topic's metadata is known and the memory is reserved, `max.block.ms` for both. Raises the
        errors of `send`.

        Conditions that held before a wait are checked again after it: the producer and its transaction are open, and
        the topic has not been evicted (`metadata.max.idle.ms`).
        """
        check_topic(topic)
        deadline = trio.current_time() + self.config.max_block_ms / 1000
        known = self._accumulator.topics.get(topic)
        if known is not None and (partition is None or partition < len(known.queues)):
            queues = known
        else:
            queues = await self._metadata.wait_for(topic, partition, deadline=deadline)
        if not self._memory.try_reserve(size_bytes):
            await self._reserve(size_bytes, deadline)
        try:
            self._check_open()
            if self._accumulator.topics.get(topic) is not queues:
                queues = await self._metadata.wait_for(topic, partition, deadline=deadline)
                self._check_open()
        except BaseException:
            self._memory.release(size_bytes)
            raise
        return queues

    async def _reserve(self, size_bytes: int, deadline: float) -> None:
        self._sender.wake()
        with trio.move_on_at(deadline):
            await self._memory.reserve(size_bytes)
            return
        raise DeadlineExceededError(
            f"no {size_bytes} bytes of buffer.memory became free in max.block.ms ({self.config.max_block_ms} ms)"
        )

    async def flush(self) -> None:
        """Send all queued records now, and wait until all records sent before this call are delivered or failed."""
        await trio.lowlevel.checkpoint()
        self._accumulator.flushes += 1
        self._sender.wake()
        try:
            pending = list(self._accumulator.incomplete)
            while pending:
                batch = pending.pop()
                await batch.finished.wait()
                pending.extend(batch.parts)
        finally:
            self._accumulator.flushes -= 1

    async def partitions_for(self, topic: str) -> list[PartitionMetadata]:
        """Return the topic's partitions and their leaders. Raises DeadlineExceededError, BrokerError or ClosedError."""
        check_topic(topic)
        await trio.lowlevel.checkpoint()
        self._check_entered()
        await self._metadata.wait_for(topic)
        known = self._cluster.topics.get(topic)
        if known is None:
            raise UnknownTopicError(topic)
        return known.partitions

    def metrics(self) -> MetricValues:
        """Return counters and rates under Kafka's names: `metrics().value("batch-split-rate")`; see `MetricValues`."""
        return self._metrics.snapshot()

    # --- transactions ---

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """Run a transaction: commit at the end of the block, abort if the block raises an exception.

        Raises ClientError without `transactional_id`, ClosedError outside the producer's block, BrokerError if the
        producer is fenced; at the end of the block BrokerError or DeadlineExceededError if the records or the commit
        failed, after which the transaction is aborted.
        """
        transactions = self._transactional()
        transactions.begin()
        try:
            yield self
            await self.flush()
            transactions.check_open()
        except BaseException as cause:
            await self._abort(transactions, cause)
            raise
        with transactions.ending():
            await transactions.end(commit=True)

    async def send_offsets_to_transaction(
        self, group: str | GroupMetadata, offsets: Mapping[AnyTopicPartition, int | CommittedOffset]
    ) -> None:
        """Commit a consumer group's offsets with the open transaction; see `TransactionManager.send_offsets`.

        A member of a group passes `Consumer.group_metadata()`, or uses `Consumer.transaction`.
        """
        await self._transactional().send_offsets(group, offsets)

    async def join_transaction(self, topic: str, partition: int) -> tuple[int, int]:
        """Add a partition to the open transaction, also for records that another producer writes to it.

        Returns the producer id and epoch that batches of that partition must have. Raises BrokerError or
        DeadlineExceededError.
        """
        await trio.lowlevel.checkpoint()
        transactions = self._transactional()
        transactions.check_open()
        transactions.note_partition(topic, partition)
        if transactions.has_new_partitions():
            await transactions.add_partitions()
            transactions.check_open()
        return transactions.producer_id, transactions.producer_epoch

    async def _abort(self, transactions: TransactionManager, cause: BaseException) -> None:
        """Abort after ``cause``; after a cancellation or an interrupt the wait for the coordinator is short."""
        is_leaving = not isinstance(cause, Exception)
        limit_s = CLOSE_GRACE_SECONDS if is_leaving else math.inf
        with (
            suppress(BrokerError, ClientError),
            transactions.ending(),
            trio.CancelScope(deadline=trio.current_time() + limit_s, shield=is_leaving),
        ):
            self._sender.abandon(AbandonedError("the transaction was aborted"), only_unsent=True)
            await self.flush()
            # Not before: records in flight may have failed meanwhile.
            has_lost_records = transactions.error is not None
            await transactions.end(commit=False)
            if has_lost_records and transactions.state is TransactionState.READY:
                # Sequence numbers may have gaps: a new epoch starts them again at 0 (KIP-360). A fenced producer must
                # not get a new epoch, which would fence its successor.
                await transactions.initialize()
                self._restart_sequences()

    def _restart_sequences(self) -> None:
        for queues in self._accumulator.topics.values():
            for queue in queues.queues:
                queue.sequence = PartitionSequence()

    def _transactional(self) -> TransactionManager:
        if self._transactions is None:
            raise ClientError("transactions need a transactional_id")
        self._check_entered()
        return self._transactions
