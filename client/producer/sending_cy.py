"""`Producer.send`: the work for each record, up to the batch that takes it.

Ordinary Python that is also compiled, as ``appending_cy.py`` is: ``sending_cy.pxd`` gives the C types. What happens
once a batch or less often is in ``producer.py``, which defines the methods that `send` awaits.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

try:
    import cython
except ImportError:
    from ...protocol.records import cython_stand_in as cython

if not cython.compiled:
    from .appending_cy import append_to_open, record_size_bound

from ..config import ProducerConfig
from ..errors import RecordTooLargeError
from .buffer_memory import BufferMemory
from .partitioner import partition_for_key
from .record_checks import check_partition, check_timestamp

if TYPE_CHECKING:
    from .accumulator_cy import Accumulator
    from .appending_cy import Delivery
    from .partition_queue_cy import TopicQueues
    from .producer_metadata import ProducerMetadata
    from .record_checks import Headers
    from .transactions import TransactionManager

ANY_PARTITION = -1
BATCH_OVERHEAD = 61
RECORDS_BETWEEN_YIELDS = 500
"""The number of consecutive sends after which other tasks must run."""


def wall_clock_ms() -> int:
    """Return milliseconds since the epoch; used for timestamps only, so that a jump of the clock affects no
    deadline.
    """
    return time.time_ns() // 1_000_000


class SendingProducer:
    """A producer as far as `send` knows it."""

    __slots__ = (
        "_accumulator",
        "_clock_ms",
        "_config",
        "_ignores_keys",
        "_is_open",
        "_max_record_bytes",
        "_memory",
        "_metadata",
        "_partitioner",
        "_sends_since_yield",
        "_transactions",
    )

    def __init__(
        self,
        config: ProducerConfig,
        clock_ms: Callable[[], int],
        memory: BufferMemory,
        accumulator: Accumulator,
        metadata: ProducerMetadata,
        transactions: TransactionManager | None,
    ) -> None:
        self._config = config
        self._clock_ms = clock_ms
        self._memory = memory
        self._accumulator = accumulator
        self._metadata = metadata
        self._transactions = transactions
        self._partitioner = config.partitioner_class
        self._ignores_keys = config.partitioner_ignore_keys
        self._max_record_bytes = config.max_request_size - BATCH_OVERHEAD
        self._is_open = False
        self._sends_since_yield = 0

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Append a record to a batch, and return its delivery, which may be awaited or not.

        The call waits for metadata and memory if necessary. It is a checkpoint before the record is appended: a
        cancelled call has sent nothing, and a call that returns has appended its record to a batch. Other tasks run
        after each full batch that can be sent and after RECORDS_BETWEEN_YIELDS records, not at each call.
        Raises TypeError or ValueError for an invalid record, RecordTooLargeError, ClosedError, DeadlineExceededError
        (`max.block.ms`) or BrokerError (topic refused); the record was not appended then.
        """
        size_bound = record_size_bound(key, value, headers)
        if partition is not None:
            partition = check_partition(partition)
        if timestamp_ms is not None:
            timestamp_ms = check_timestamp(timestamp_ms)
        if size_bound > self._max_record_bytes:
            raise RecordTooLargeError(
                f"a record of {size_bound} bytes exceeds max.request.size ({self._config.max_request_size})"
            )
        if self._sends_since_yield < RECORDS_BETWEEN_YIELDS:
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            await self._yield()
        if not self._is_open or self._transactions is not None:
            self._check_open()
        queues = self._accumulator.topics.get(topic)
        appended_at: int | None = None
        if queues is not None and self._partitioner is None:
            if partition is not None:
                chosen = partition
            elif key is None or self._ignores_keys:
                chosen = ANY_PARTITION
            else:
                chosen = partition_for_key(key, len(queues.queues))
            appended_at = self._clock_ms() if timestamp_ms is None else timestamp_ms
            quick = append_to_open(queues, self._memory, chosen, appended_at, key, value, headers, size_bound)
            if quick is not None:
                if self._transactions is not None:
                    self._transactions.note_partition(topic, quick.partition)
                self._sends_since_yield += 1
                return quick
        if (
            queues is None
            or (partition is not None and partition >= len(queues.queues))
            or not self._memory.try_reserve(size_bound)
        ):
            queues = await self._admit(topic, partition, size_bound)
            appended_at = None
        # Nothing waits from here on: the record is appended completely, or not at all.
        try:
            if partition is None:
                is_any = key is None and self._partitioner is None
                partition = ANY_PARTITION if is_any else self._partition_for(queues, key, value)
            if appended_at is None:
                appended_at = self._clock_ms() if timestamp_ms is None else timestamp_ms
            delivery, is_begun, is_filled = self._accumulator.append(
                queues, partition, appended_at, key, value, headers, size_bound
            )
        except BaseException:
            self._memory.release(size_bound)
            raise
        if self._transactions is not None:
            self._transactions.note_partition(topic, delivery.partition)
        self._sends_since_yield += 1
        if is_begun or is_filled:
            if is_begun:
                self._metadata.use(topic, self._accumulator.last_begun_at)
            self._note_batch(queues.queues[delivery.partition].leader, is_filled=is_filled)
        return delivery

    # --- defined by the producer ---

    @abstractmethod
    def _check_open(self) -> None:
        """Raise unless records may be sent now."""

    @abstractmethod
    async def _yield(self) -> None:
        """Let other tasks run."""

    @abstractmethod
    def _partition_for(self, queues: TopicQueues, key: bytes | None, value: bytes | None) -> int:
        """Return the partition of a record that was sent without one, or ANY_PARTITION."""

    @abstractmethod
    async def _admit(self, topic: str, partition: int | None, size_bytes: int) -> TopicQueues:
        """Wait until the topic's metadata is known and the memory is reserved."""

    @abstractmethod
    def _note_batch(self, leader: int | None, *, is_filled: bool) -> None:
        """Let the sender see a batch that was begun or filled."""
