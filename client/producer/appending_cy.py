"""What a producer does for every single record: it goes into an open batch, and its delivery comes out.

Ordinary Python that is also compiled, as ``protocol/records/kernel_cy`` is: ``appending_cy.pxd`` gives the C types.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

import trio

try:
    import cython
except ImportError:
    from ...protocol.records import cython_stand_in as cython

if not cython.compiled:
    from ...protocol.records.client_records_cy import encode_record

    def hide_from_collector(delivery: Delivery) -> None:
        """What `PyObject_GC_UnTrack` does where this module is compiled."""


from ...protocol.records.record import NO_TIMESTAMP
from ..errors import anew
from .record_metadata import RecordMetadata

if TYPE_CHECKING:
    from .batch import ProducerBatch
    from .record_checks import Headers

MAX_RECORD_OVERHEAD = 21
"""Bytes that a record can take beyond its key, value and headers (Kafka DefaultRecord.MAX_RECORD_OVERHEAD)."""

MAX_LENGTH_BYTES = 5


def record_size_bound(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Return the most bytes that the record can take in a batch of format v2.

    Raises TypeError for what no record can be made of, so that nothing is begun for such.
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
    # Headers are read twice, here and when they are encoded: what can be iterated once only will not do.
    if not isinstance(headers, Sequence) or isinstance(headers, (str, bytes)):
        raise TypeError(f"a record's headers must be a sequence of (name, value) pairs, not {type(headers).__name__}")
    size = 0
    for header in headers:
        if not isinstance(header, tuple | list) or len(header) != 2:
            raise TypeError(f"a record's header must be a (name, value) pair, not {header!r:.100}")
        name, content = header
        if isinstance(name, str):
            # UTF-8 takes at most four bytes a character; the exact count would mean encoding the name twice.
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


class Delivery:
    """A future-like view of one record: await it for its `RecordMetadata`, or for what became of it instead.

    Being awaited twice, by several tasks or not at all is fine. Cancelling the wait does not recall the record.

    Programs keep many of these, and the garbage collector would look through all of them again and again; where this
    is compiled, it does not. So no batch may lead back to a delivery of its own. What could is the traceback of an
    exception, for which reason the errors that batches hold are never handed out themselves (`errors.anew`).
    """

    __slots__ = ("_batch", "_index", "timestamp")

    def __init__(self, batch: OpenBatch, index: int, timestamp: int) -> None:
        self._batch: ProducerBatch = batch  # type: ignore[assignment]  # There are no others.
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
        """Wait until the record was acknowledged or has failed, without raising what it failed with."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while not (batch := self._whereabouts()).is_done:
            await batch.finished.wait()

    @property
    def finished_at(self) -> float:
        """When that was, on trio's clock."""
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
        """The record's partition, known from the start."""
        return self._batch.partition

    @property
    def offset(self) -> int:
        """The record's offset. Raises as `result` does."""
        return self.result().offset

    @property
    def error(self) -> Exception | None:
        """Why the record failed; None if it did not, or not yet."""
        batch = self._whereabouts()
        return None if batch.error is None else anew(batch.record_errors.get(self._index, batch.error))

    def result(self) -> RecordMetadata:
        """The outcome, without waiting. Raises it if it is an error, RuntimeError if there is none yet."""
        batch = self._whereabouts()
        if not batch.is_done:
            raise RuntimeError("the record is still on its way; await its delivery")
        if batch.error is not None:
            raise anew(batch.record_errors.get(self._index, batch.error))
        base_offset = batch.acknowledged_base_offset
        offset = base_offset + self._index if base_offset >= 0 else -1
        append_time = batch.acknowledged_append_time
        timestamp = append_time if append_time != NO_TIMESTAMP else self.timestamp
        return RecordMetadata(batch.topic, batch.partition, offset, timestamp)

    def _whereabouts(self) -> ProducerBatch:
        """The batch that has the record now: a split puts two in the place of one (KIP-126)."""
        while halves := self._batch.halves:
            first, second = halves
            if self._index < first.record_count:
                self._batch = first
            else:
                self._batch = second
                self._index -= first.record_count
        return self._batch


class OpenBatch:
    """The records of one batch, encoded, as long as some may be added.

    Sizes are bytes and time stamps milliseconds. `room` is what is left of batch.size by the estimate of KIP-126;
    negative when the first record was larger. What is appended counts `growth_factor` times. `reserved_bytes` of
    buffer.memory are the batch's to give back.
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
        self.body = bytearray()
        self.record_count = 0
        self.reserved_bytes = 0
        self.base_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP

    def append(
        self, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers, reserved_bytes: int = 0
    ) -> Delivery:
        """Take a record in, and the memory that was reserved for it.

        Raises TypeError or OverflowError, having taken nothing in, for what no record can be made of.
        """
        count = self.record_count
        base_timestamp = self.base_timestamp if count else timestamp
        record = encode_record(timestamp - base_timestamp, count, key, value, headers)
        if not count:
            self.base_timestamp = self.max_timestamp = timestamp
        elif timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        self.body += record
        self.room -= len(record) * self.growth_factor
        self.record_count = count + 1
        self.reserved_bytes += reserved_bytes
        return Delivery(self, count, timestamp)
