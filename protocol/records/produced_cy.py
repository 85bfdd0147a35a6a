"""The facts about a validated Produce payload that offset assignment, the log and its index need.

This is ordinary Python that is also compiled: ``produced_cy.pxd`` has the C types.
"""

from __future__ import annotations

from .compression import Codec
from .record import NO_TIMESTAMP
from .v2 import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, next_sequence


class ProducedBatch:
    """One batch of a payload, at `position` with `size_bytes` in the payload's data.

    Uncompressed v0 or v1 messages, each a batch in Kafka, are one batch here.
    `max_timestamp` (milliseconds, -1: none) is computed from the records, not from the header, and
    `index_of_max_timestamp` the first record that has it. `relative_offsets_honoured` and `keyed` (some record has a
    key) are the enriched metadata of those names. `base_offset` and `last_offset` are -1 until they are assigned.
    """

    def __init__(
        self,
        position: int,
        size_bytes: int,
        magic: int,
        codec: Codec,
        record_count: int,
        max_timestamp: int = NO_TIMESTAMP,
        index_of_max_timestamp: int = 0,
        relative_offsets_honoured: bool = True,
        keyed: bool = False,
        is_transactional: bool = False,
        is_control: bool = False,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        base_offset: int = -1,
        last_offset: int = -1,
    ) -> None:
        self.position = position
        self.size_bytes = size_bytes
        self.magic = magic
        self.codec = codec
        self.record_count = record_count
        self.max_timestamp = max_timestamp
        self.index_of_max_timestamp = index_of_max_timestamp
        self.relative_offsets_honoured = relative_offsets_honoured
        self.keyed = keyed
        self.is_transactional = is_transactional
        self.is_control = is_control
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.base_offset = base_offset
        self.last_offset = last_offset

    @property
    def has_producer_id(self) -> bool:
        """Return whether an idempotent producer wrote the batch."""
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """Return the sequence of the last record, -1 without records; sequences wrap at 2**31 - 1 to 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return next_sequence(self.base_sequence, self.record_count - 1)


class Produced:
    """A validated payload: `data` has its complete batches, without an incomplete one at the end.

    Kafka's rules allow at most one batch (see `ProducedBatch` for v0 and v1); without a batch nothing is appended.
    """

    def __init__(self, data: memoryview, batches: list[ProducedBatch] | None = None) -> None:
        self.data = data
        self.batches: list[ProducedBatch] = [] if batches is None else batches

    @property
    def record_count(self) -> int:
        """Return the number of records in all batches, which is the number of offsets to assign."""
        return sum([batch.record_count for batch in self.batches])

    @property
    def size_bytes(self) -> int:
        """Return the size of the payload in bytes."""
        return len(self.data)

    @property
    def max_timestamp(self) -> int:
        """Return the largest timestamp of any record, -1 if no record has a timestamp."""
        return max([batch.max_timestamp for batch in self.batches], default=NO_TIMESTAMP)

    def writable_data(self) -> memoryview:
        """Return `data` for changes; read-only data is replaced by a copy first."""
        if self.data.readonly:
            self.data = memoryview(bytearray(self.data))
        return self.data
