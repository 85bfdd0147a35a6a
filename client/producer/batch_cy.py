"""A batch of the producer: records of one partition from `send` to the broker's answer.

      append            seal             drain            acknowledged
    OPEN ───> OPEN ───> SEALED ───> IN_FLIGHT ───────────> DELIVERED
                          ^   \\         │ │  \\
                          │    \\  retry │ │   \\ refused, given up
                          └─────────────┘ │    `─────────> FAILED   (from any state before)
                          │               │ MESSAGE_TOO_LARGE
                          └───────────────┴──────────────> SPLIT    (SEALED batches take its place)
                            known to be too large

A sealed batch holds only the bytes that are sent, not the records; a batch that must be split is decompressed again
(KIP-126: keeping the records for this rare case would cost more). `splitting.py` has the split.

Ordinary Python that is also compiled, as ``appending_cy.py`` is: ``batch_cy.pxd`` gives the C types.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from enum import IntEnum, auto

import trio

try:
    import cython
except ImportError:
    from ...protocol.records import cython_stand_in as cython

if not cython.compiled:
    from ...protocol.records.checksum_libraries import crc32c_of
    from ...protocol.records.message_bytes import put_int16, put_int32, put_int64, put_uint32, put_v2_head
    from .appending_cy import OpenBatch

from ...protocol.records import v1, v2
from ...protocol.records.batches import iter_records, read_batch
from ...protocol.records.compression import Codec, compress
from ...protocol.records.record import NO_TIMESTAMP, Record
from ..errors import copied_error
from .compression_estimator import CONTINGENCY_FACTOR, CompressionRatioEstimator
from .raw_batch import RawBatch, produced_again


class BatchState(IntEnum):
    """The state of a batch; see the diagram above."""

    OPEN = auto()
    SEALED = auto()
    IN_FLIGHT = auto()
    DELIVERED = auto()
    FAILED = auto()
    SPLIT = auto()


_NEXT_STATES = {
    BatchState.OPEN: {BatchState.SEALED, BatchState.FAILED},
    BatchState.SEALED: {BatchState.IN_FLIGHT, BatchState.FAILED, BatchState.SPLIT},
    BatchState.IN_FLIGHT: {BatchState.SEALED, BatchState.DELIVERED, BatchState.FAILED, BatchState.SPLIT},
    BatchState.DELIVERED: set(),
    BatchState.FAILED: set(),
    BatchState.SPLIT: set(),
}
# Names of this module: an attribute of an enumeration takes longer to find.
OPEN = BatchState.OPEN
SEALED = BatchState.SEALED
IN_FLIGHT = BatchState.IN_FLIGHT
DELIVERED = BatchState.DELIVERED
FAILED = BatchState.FAILED
SPLIT = BatchState.SPLIT

BATCH_HEADER_SIZE = 61
CRC_AT = 17
ATTRIBUTES_AT = 21
PRODUCER_ID_AT = 43
PRODUCER_EPOCH_AT = 51
BASE_SEQUENCE_AT = 53
LENGTH_FROM = 12
"""The position from which on a batch's length field counts."""


class ProducerBatch(OpenBatch):
    """Records of one partition that are sent together. Times are seconds of trio's clock; see also `OpenBatch`."""

    __slots__ = (
        "_finished",
        "acknowledged_append_time",
        "acknowledged_base_offset",
        "attempts",
        "base_sequence",
        "codec",
        "crc_is_due",
        "created_at",
        "error",
        "finished_at",
        "is_raw",
        "keeps_producer",
        "magic",
        "partition",
        "parts",
        "payload",
        "producer_epoch",
        "producer_id",
        "record_errors",
        "retry_at",
        "sent_bytes",
        "sent_to",
        "size_limit",
        "state",
        "topic",
    )

    def __init__(
        self, topic: str, partition: int, *, codec: Codec, ratio: float, size_limit: int, created_at: float
    ) -> None:
        growth_factor = 1.0 if codec is Codec.NONE else ratio * CONTINGENCY_FACTOR
        super().__init__(float(size_limit - BATCH_HEADER_SIZE), growth_factor)
        self.topic = topic
        self.partition = partition
        self.codec = codec
        self.size_limit = size_limit
        self.created_at = created_at
        self.state = OPEN
        self.payload: bytes | bytearray = b""
        self.crc_is_due = False
        """Whether the header of `payload` has changed since its CRC was computed; `sent` computes it again."""
        self.is_raw = False
        """Whether the batch was built by the caller of `send_batch`: such a batch is sent unchanged or not at all."""
        self.keeps_producer = False
        """Whether the batch keeps the producer id and epoch of another producer."""
        self.magic = v2.MAGIC
        self.parts: tuple[ProducerBatch, ...] = ()
        """The batches that replaced this batch when it was split; deliveries find their records through it."""
        self.attempts = 0
        self.retry_at = 0.0
        self.sent_to: int | None = None
        """Node id of the broker that the last attempt was sent to."""
        self.sent_bytes = 0
        """The size of the batch in the last request: a broker before 0.11 is sent another format."""
        self.producer_id = v2.NO_PRODUCER_ID
        self.producer_epoch = v2.NO_PRODUCER_EPOCH
        self.base_sequence = v2.NO_SEQUENCE
        self._finished: trio.Event | None = None
        self.finished_at = math.inf
        self.error: Exception | None = None
        self.record_errors: dict[int, Exception] = {}
        self.acknowledged_base_offset = -1
        self.acknowledged_append_time = NO_TIMESTAMP

    # --- sizes ---

    @property
    def estimated_size(self) -> int:
        """The bytes that the batch is expected to take on the wire: exact unless the batch is compressed and still
        open.
        """
        if self.state is OPEN:
            return int(self.size_limit - self.room)
        return len(self.payload)

    @property
    def is_full(self) -> bool:
        """Whether the estimated size has reached batch.size, or the batch is no longer open."""
        return self.state is not OPEN or (self.room <= 0 and self.record_count > 0)

    # --- bytes ---

    def seal(self, estimator: CompressionRatioEstimator, is_transactional: bool = False) -> None:
        """Close the batch: compress it, update the estimated compression ratio, write the header except for the CRC."""
        attributes = int(self.codec) | (v2.TRANSACTIONAL_FLAG if is_transactional else 0)
        batch = self.body
        if attributes & v2.CODEC_MASK:
            records = memoryview(self.body)[BATCH_HEADER_SIZE:]
            packed = compress(self.codec, records)
            estimator.observe(self.topic, self.codec, len(packed) / len(records))
            batch = bytearray(BATCH_HEADER_SIZE)
            batch += packed
        put_v2_head(
            cython.cast(cython.p_uchar, batch) if cython.compiled else batch,
            0,
            0,
            len(batch) - LENGTH_FROM,
            attributes,
            self.record_count - 1,
            self.base_timestamp,
            self.max_timestamp,
            self.record_count,
        )
        self.payload = batch
        self.crc_is_due = True
        self.body = bytearray()
        self._move_to(SEALED)

    @classmethod
    def from_raw(
        cls,
        topic: str,
        partition: int,
        raw: RawBatch,
        created_at: float,
        *,
        keeps_producer: bool,
        is_transactional: bool = False,
    ) -> ProducerBatch:
        """Return a sealed batch for a complete batch that the caller has built; see `Producer.send_batch`."""
        batch = cls(topic, partition, codec=raw.codec, ratio=1.0, size_limit=0, created_at=created_at)
        batch.record_count = raw.record_count or 1
        batch.magic = raw.magic
        batch.is_raw = True
        batch.keeps_producer = keeps_producer and raw.magic == v2.MAGIC
        batch.payload = raw.payload
        if batch.keeps_producer:
            batch.producer_id, batch.producer_epoch = raw.producer_id, raw.producer_epoch
            batch.base_sequence = raw.base_sequence
        elif raw.magic == v2.MAGIC:
            view = read_batch(raw.payload)
            assert view is not None, "the caller has checked the batch"
            batch.payload = produced_again(view, is_transactional=is_transactional)
        batch.max_timestamp = raw.max_timestamp
        batch._move_to(SEALED)
        return batch

    @property
    def is_legacy(self) -> bool:
        """Whether the batch is in a format without producer ids, which Produce requests from version 3 on do not
        accept.
        """
        return self.magic < v2.MAGIC

    def stamp(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Write the producer's identity and the first record's sequence number into the sealed bytes."""
        self.producer_id, self.producer_epoch, self.base_sequence = producer_id, producer_epoch, base_sequence
        batch = self.payload if isinstance(self.payload, bytearray) else bytearray(self.payload)
        data = cython.cast(cython.p_uchar, batch) if cython.compiled else batch
        put_int64(data, PRODUCER_ID_AT, producer_id)
        put_int16(data, PRODUCER_EPOCH_AT, producer_epoch)
        put_int32(data, BASE_SEQUENCE_AT, base_sequence)
        self.payload = batch
        self.crc_is_due = True

    @property
    def has_sequence(self) -> bool:
        """Whether the batch was stamped."""
        return self.base_sequence != v2.NO_SEQUENCE

    def records(self) -> Iterator[Record]:
        """Return the records of a sealed batch, decompressed, with offsets from 0."""
        view = read_batch(self.payload)
        assert view is not None, "a sealed batch holds a whole one"
        return iter_records(view)

    def legacy_payload(self) -> bytes:
        """Return the sealed batch as a message set of format v1, for brokers before 0.11. Format v1 has no headers."""
        codec = Codec.NONE if self.codec is Codec.ZSTD else self.codec
        return v1.build_message_set(list(self.records()), codec=codec)

    @property
    def is_transactional(self) -> bool:
        """Whether the sealed batch is part of a transaction."""
        return bool(self.payload[v2.ATTRIBUTES_AT + 1] & v2.TRANSACTIONAL_FLAG)

    def part(self, records: Iterable[Record]) -> ProducerBatch:
        """Return an open batch with some of this batch's records, which takes their place in a split."""
        part = ProducerBatch(
            self.topic,
            self.partition,
            codec=self.codec,
            ratio=1.0,
            size_limit=self.size_limit,
            created_at=self.created_at,
        )
        part.attempts = self.attempts
        for record in records:
            part.append(record.timestamp, record.key, record.value, record.headers)
        return part

    def replaced_by(self, parts: tuple[ProducerBatch, ...]) -> None:
        """Note that these batches hold the records from now on."""
        self._move_to(SPLIT)
        self.parts = parts
        self.reserved_bytes = 0
        self.payload = b""
        self._wake()

    # --- states ---

    @property
    def is_done(self) -> bool:
        """Whether the records are delivered or failed."""
        return self.state is DELIVERED or self.state is FAILED

    @property
    def finished(self) -> trio.Event:
        """An event that is set once the batch is delivered, failed or split.

        The event is created when it is first asked for: nearly all batches are finished without a task that waits.
        """
        if self._finished is None:
            self._finished = trio.Event()
            if self.is_done or self.state is SPLIT:
                self._finished.set()
        return self._finished

    def sent(self, node: int | None = None) -> None:
        """Note that the batch is sent to a broker; from now on its bytes are complete."""
        if self.crc_is_due:
            assert isinstance(self.payload, bytearray), "bytes that are not ours have a CRC"
            batch = self.payload
            data = cython.cast(cython.p_uchar, batch) if cython.compiled else memoryview(batch)
            put_uint32(data, CRC_AT, crc32c_of(data, ATTRIBUTES_AT, len(batch)))
            self.crc_is_due = False
        self.attempts += 1
        self.sent_to = node
        self._move_to(IN_FLIGHT)

    def back_to_queue(self, retry_at: float) -> None:
        """Note that the batch must be sent again, not before `retry_at`."""
        self.retry_at = retry_at
        self._move_to(SEALED)

    def delivered(self, base_offset: int, append_time: int, now: float) -> None:
        """Note the acknowledgement, which arrived at `now`, and wake the tasks that wait for the records."""
        self.acknowledged_base_offset = base_offset
        self.acknowledged_append_time = append_time
        self._finish(DELIVERED, now)

    def failed(self, error: Exception, record_errors: dict[int, Exception] | None = None) -> None:
        """Note that the records failed with `error`; single records may have errors of their own."""
        # Without tracebacks, which may refer to a task that waits for this batch (see `Delivery`).
        self.error = copied_error(error)
        self.record_errors = record_errors or {}
        self._finish(FAILED, trio.current_time())

    def _finish(self, state: BatchState, now: float) -> None:
        self._move_to(state)
        self.finished_at = now
        self.payload = b""
        self.body = bytearray()
        self._wake()

    def _wake(self) -> None:
        if self._finished is not None:
            self._finished.set()

    def _move_to(self, state: BatchState) -> None:
        assert state in _NEXT_STATES[self.state], f"{self.state} cannot become {state}"
        self.state = state
