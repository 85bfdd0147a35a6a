"""The work of a producer for every single record: `append_to_open` finds the batch that a record is appended to,
`OpenBatch.append` encodes the record and returns its `Delivery`.

Ordinary Python that is also compiled, as ``protocol/records/kernel_cy`` is: ``appending_cy.pxd`` gives the C types.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import trio

try:
    import cython
except ImportError:
    from ...protocol.records import cython_stand_in as cython

if not cython.compiled:
    from ...protocol.records.client_records_cy import append_record

    def hide_from_collector(delivery: Delivery) -> None:
        """Do nothing; where this module is compiled, `PyObject_GC_UnTrack` is called instead."""


from ...protocol.records.record import NO_TIMESTAMP
from ..errors import copied_error
from .record_metadata import RecordMetadata

if TYPE_CHECKING:
    from .delivered_batch import DeliveredBatch
    from .record_checks import Headers

    class Queue(Protocol):
        """The queue of a partition; see `partition_queue_cy.PartitionQueue`."""

        @property
        def open_batch(self) -> OpenBatch | None:
            """The batch that records may be appended to."""

    class Sticky(Protocol):
        """The sticky choice of a topic; see `partitioner.StickyPartitioner`."""

        partition: int
        produced_bytes: float
        finish_limit_bytes: int

    class Queues(Protocol):
        """The queues of a topic; see `partition_queue_cy.TopicQueues`."""

        @property
        def sticky(self) -> Sticky:
            """The sticky choice among the queues."""

        @property
        def queues(self) -> Sequence[Queue]:
            """The queue of each partition."""


MAX_RECORD_OVERHEAD = 21
"""The largest size of a record beyond its key, value and headers (Kafka DefaultRecord.MAX_RECORD_OVERHEAD)."""

MAX_LENGTH_BYTES = 5

BATCH_HEADER_SIZE = 61
"""The size of a batch's header in format v2, in bytes."""


def record_size_bound(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Return the largest size in bytes that the record can have in a batch of format v2.

    Raises TypeError for an invalid key, value or header, before a batch is started.
    """
    size = MAX_RECORD_OVERHEAD
    if key is not None:
        if type(key) is not bytes:
            raise TypeError(f"a record's key must be bytes or None, not {type(key).__name__}")
        size += len(key)
    if value is not None:
        if type(value) is not bytes:
            raise TypeError(f"a record's value must be bytes or None, not {type(value).__name__}")
        size += len(value)
    if headers:
        size += _headers_size_bound(headers)
    return size


def _headers_size_bound(headers: Headers) -> int:
    # Headers are read twice, here and when they are encoded: an iterable that can be read only once is not enough.
    if not isinstance(headers, Sequence) or isinstance(headers, (str, bytes)):
        raise TypeError(f"a record's headers must be a sequence of (name, value) pairs, not {type(headers).__name__}")
    size = 0
    for header in headers:
        if not isinstance(header, tuple | list) or len(header) != 2:
            raise TypeError(f"a record's header must be a (name, value) pair, not {header!r:.100}")
        name, content = header
        if isinstance(name, str):
            # UTF-8 takes at most four bytes per character; the exact size would require encoding the name twice.
            size += len(name) if name.isascii() else 4 * len(name)
        elif isinstance(name, bytes):
            size += len(name)
        else:
            raise TypeError(f"a header's name must be str or bytes, not {type(name).__name__}")
        if content is not None:
            if not isinstance(content, bytes):
                raise TypeError(f"a header's value must be bytes or None, not {type(content).__name__}")
            size += len(content)
        size += 2 * MAX_LENGTH_BYTES
    return size


class ReservedBytes:
    """A bounded counter of bytes, and the queue of callers that wait for bytes; see `buffer_memory.BufferMemory`."""

    __slots__ = ("capacity_bytes", "used_bytes", "waiting")

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        self.waiting: deque[Any] = deque()

    def try_reserve(self, size_bytes: int) -> bool:
        """Reserve the bytes if they are free and no other caller waits for memory.

        Returns whether they were reserved.
        """
        if self.waiting or self.used_bytes + size_bytes > self.capacity_bytes:
            return False
        self.used_bytes += size_bytes
        return True

    def release(self, size_bytes: int) -> None:
        """Release bytes, and hand them to the waiting callers in order."""
        self.used_bytes -= size_bytes
        if self.waiting:
            self._grant()

    def _grant(self) -> None:
        """Reserve the bytes of the first waiting callers as far as they are free; see `BufferMemory`."""
        raise NotImplementedError


class Delivery:
    """A future-like view of one record: awaiting it returns the record's `RecordMetadata`, or raises the record's
    error.

    A delivery may be awaited several times, by several tasks, or not at all. Cancelling the wait does not withdraw
    the record.

    Programs keep many deliveries, and the garbage collector would traverse all of them again and again; in the
    compiled module deliveries are hidden from the collector. So no batch may hold a reference to a delivery of its
    own. The traceback of an exception could hold one; therefore the errors that batches hold are never raised
    themselves, only copies of them (`errors.copied_error`).
    """

    __slots__ = ("_batch", "_index", "timestamp")

    def __init__(self, batch: OpenBatch, index: int, timestamp: int) -> None:
        self._batch: DeliveredBatch = batch  # type: ignore[assignment]  # There are no others.
        self._index = index
        self.timestamp = timestamp
        hide_from_collector(self)

    def __await__(self) -> Generator[Any, Any, RecordMetadata]:
        return self.wait().__await__()

    async def wait(self) -> RecordMetadata:
        """Wait until the record is acknowledged.

        Raises BrokerError (refused), DeadlineExceededError (`delivery.timeout.ms`) or AbandonedError.
        """
        await self.wait_done()
        return self.result()

    async def wait_done(self) -> None:
        """Wait until the record is acknowledged or has failed, without raising the record's error."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while not (batch := self._whereabouts()).is_done:
            await batch.finished.wait()

    @property
    def finished_at(self) -> float:
        """The time at which the record was acknowledged or failed, on trio's clock."""
        return self._whereabouts().finished_at

    @property
    def is_done(self) -> bool:
        """Whether the record was acknowledged or has failed."""
        return self._whereabouts().is_done

    @property
    def topic(self) -> str:
        """The record's topic."""
        return self._batch.topic

    @property
    def partition(self) -> int:
        """The record's partition, set when the record is sent."""
        return self._batch.partition

    @property
    def offset(self) -> int:
        """The record's offset. Raises the errors of `result`."""
        return self.result().offset

    @property
    def error(self) -> Exception | None:
        """The error of the record; None if the record has not failed, or not yet."""
        batch = self._whereabouts()
        return None if batch.error is None else copied_error(batch.record_errors.get(self._index, batch.error))

    def result(self) -> RecordMetadata:
        """Return the record's metadata without waiting.

        Raises the record's error, or RuntimeError while the record is pending.
        """
        batch = self._whereabouts()
        if not batch.is_done:
            raise RuntimeError("the record is not delivered yet: await its delivery")
        if batch.error is not None:
            raise copied_error(batch.record_errors.get(self._index, batch.error))
        base_offset = batch.acknowledged_base_offset
        offset = base_offset + self._index if base_offset >= 0 else -1
        append_time = batch.acknowledged_append_time
        timestamp = append_time if append_time != NO_TIMESTAMP else self.timestamp
        return RecordMetadata(batch.topic, batch.partition, offset, timestamp)

    def _whereabouts(self) -> DeliveredBatch:
        """Return the batch that holds the record now: a split replaces one batch by several (KIP-126)."""
        while parts := self._batch.parts:
            for part in parts:
                if self._index < part.record_count:
                    self._batch = part
                    break
                self._index -= part.record_count
        return self._batch


class OpenBatch:
    """A batch that records may still be appended to, encoded.

    Sizes are in bytes and timestamps in milliseconds. `room` is the part of batch.size that is left by the estimate
    of KIP-126; it is negative when the first record was larger. An appended byte counts `growth_factor` times.
    `body` has room for the batch's header (BATCH_HEADER_SIZE), then the records.
    `reserved_bytes` is the part of buffer.memory that the batch will release.
    """

    __slots__ = (
        "base_timestamp",
        "body",
        "growth_factor",
        "max_timestamp",
        "record_count",
        "reserved_bytes",
        "room",
    )

    def __init__(self, room: float, growth_factor: float) -> None:
        self.room = room
        self.growth_factor = growth_factor
        self.body = bytearray(BATCH_HEADER_SIZE)
        self.record_count = 0
        self.reserved_bytes = 0
        self.base_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP

    def append(
        self, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers, reserved_bytes: int = 0
    ) -> Delivery:
        """Append a record, and add its reserved memory to `reserved_bytes`.

        Raises TypeError or OverflowError for an invalid record, without having appended it.
        """
        count = self.record_count
        base_timestamp = self.base_timestamp if count else timestamp
        size = append_record(self.body, timestamp - base_timestamp, count, key, value, headers)
        if not count:
            self.base_timestamp = self.max_timestamp = timestamp
        elif timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        self.room -= size * self.growth_factor
        self.record_count = count + 1
        self.reserved_bytes += reserved_bytes
        return Delivery(self, count, timestamp)


def append_to_open(
    queues: Queues,
    memory: ReservedBytes,
    partition: int,
    timestamp: int,
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
    size_bound: int,
) -> Delivery | None:
    """Append a record to the open batch of its partition (negative: the sticky one), and reserve its memory.

    Returns None, and has done nothing, if more than that is necessary: a new batch, another sticky partition, a wait
    for memory, or to send the batch because it may be full now. Raises the errors of `OpenBatch.append`.
    """
    sticky = queues.sticky
    index = partition
    if partition < 0:
        index = sticky.partition
        if index < 0 or sticky.produced_bytes >= sticky.finish_limit_bytes:
            return None
    elif index >= len(queues.queues):
        return None
    batch: OpenBatch | None = queues.queues[index].open_batch
    if batch is None:
        return None
    room = batch.room
    if room <= size_bound or room <= size_bound * batch.growth_factor or not memory.try_reserve(size_bound):
        return None
    try:
        delivery = batch.append(timestamp, key, value, headers, size_bound)
    except BaseException:
        memory.used_bytes -= size_bound
        raise
    if partition < 0:
        sticky.produced_bytes += room - batch.room
    return delivery
