"""The records of a batch that compaction keeps, and the merging of consecutive batches.

The rules are Kafka's (`Cleaner.cleanInto`, `MemoryRecords.filterTo`), so the same records remain:

    newer      a record is removed if the map has a larger offset for its key
    keyless    a record without a key is removed
    tombstone  a null value is removed once its delete horizon has passed: v2 batches have it since their first
               cleaning (KIP-534), for v0 and v1 it is the age of their segment
    aborted    records of aborted transactions are removed
    marker     a marker is removed once no record of its transaction is left and its horizon has passed
    producer   the last batch of an active producer remains as an empty header, for its sequence and epoch

Offsets never change. A batch that loses no record is copied unchanged.

Beyond Kafka, the remaining records of consecutive batches become one batch, also across the segments that are merged:

    v2         batches with equal header fields, with gaps between the offsets
    producer   the batches of one producer id, if their offsets and sequence numbers continue each other, so that the
               merged batch has the sequence numbers of both; not those that the log knows for recognising duplicates
    v0, v1     wrappers of one codec; of v0 only those received together, since their messages have no other time
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...protocol.records import v0, v1, v2
from ...protocol.records.batches import BatchView, Record, iter_records
from ...protocol.records.compression import Codec, compress
from ...protocol.records.record import NO_TIMESTAMP, TimestampType
from ..producers.producer_state import ProducerStates
from ..recovery.recovery import MAX_RELATIVE_OFFSET
from .compaction_map import OffsetMap
from .compaction_transactions import PassingTransactions

MERGED_BYTES = 64 * 1024
"""The largest size in bytes of a merged batch before compression; larger batches are not merged."""


class FilterRules(NamedTuple):
    """The parameters of one pass over a group of segments; times in ms."""

    offsets: OffsetMap
    producers: ProducerStates
    now_ms: int
    delete_retention_ms: int


class CleanedBatch(NamedTuple):
    """Bytes for the cleaned segment, and their receipt time (-1: unknown)."""

    data: bytes
    receipt_ms: int


class _Open:
    """A batch into which the next batches may still be merged."""

    def __init__(
        self, first: BatchView, records: list[Record], last_offset: int, size_bytes: int, receipt_ms: int
    ) -> None:
        self.first = first
        self.first_offset = records[0].offset
        self.records = records
        self.last_offset = last_offset
        self.size_bytes = size_bytes
        self.receipt_ms = receipt_ms
        """The newest receipt time of the merged batches, so that retention never removes a record too early."""
        self.original: BatchView | None = first

    def can_take(self, batch: BatchView, size_bytes: int, receipt_ms: int, most_bytes: int) -> bool:
        """Return whether both batches have the same header fields and are small enough as one batch."""
        first = self.first
        return (
            batch.magic == first.magic
            and batch.attributes == first.attributes
            and batch.leader_epoch == first.leader_epoch
            and batch.last_offset - self.first_offset <= MAX_RELATIVE_OFFSET
            and self.size_bytes + size_bytes <= most_bytes
            and (batch.magic != v0.MAGIC or receipt_ms == self.receipt_ms)
            and self._is_continued_by(batch)
        )

    def _is_continued_by(self, batch: BatchView) -> bool:
        """Return whether sequence numbers and offsets of one producer continue; True without producers."""
        first = self.first
        if batch.producer_id != first.producer_id or batch.producer_epoch != first.producer_epoch:
            return False
        if not batch.has_producer_id:
            return True
        next_one = v2.next_sequence(first.base_sequence, self.last_offset - first.stored_offset + 1)
        return batch.stored_offset == self.last_offset + 1 and batch.base_sequence == next_one


class BatchFilter:
    """A pass over the batches of one group of segments, in the order of their offsets."""

    def __init__(self, rules: FilterRules, transactions: PassingTransactions, *, max_message_bytes: int) -> None:
        self._rules = rules
        self._transactions = transactions
        self._most_merged_bytes = min(MERGED_BYTES, max_message_bytes)
        self._open: _Open | None = None
        self.keeps_legacy_tombstones = True
        """Whether tombstones of v0 and v1 stay, for which the age of the present segment decides."""

    def clean(self, batch: BatchView, receipt_ms: int, *, is_keyless: bool = False) -> Iterator[CleanedBatch]:
        """Return the batches to write after `batch` was read; some are kept for the next call or for `finish`.

        A batch that `is_keyless` is not decompressed. Raises BrokerError if the batch cannot be read.
        """
        if batch.is_control:
            yield from self.finish()
            kept = self._clean_marker(batch)
            if kept is not None:
                yield CleanedBatch(kept, receipt_ms)
            return
        if self._transactions.is_aborted(batch) or (is_keyless and batch.last_offset < self._rules.offsets.end_offset):
            records: list[Record] = []
            total = -1
        else:
            every = list(iter_records(batch))
            total = len(every)
            records = [record for record in every if self._keeps(batch, record)]
        if not records:
            if self._is_last_of_producer(batch):
                yield from self.finish()
                yield CleanedBatch(_emptied(batch), receipt_ms)
            return
        horizon_ms = self._horizon_of(batch, records)
        if self._is_mergeable(batch) and horizon_ms == batch.delete_horizon_ms:
            yield from self._join(batch, records, receipt_ms, is_whole=len(records) == total)
            return
        yield from self.finish()
        if len(records) == total and horizon_ms == batch.delete_horizon_ms:
            yield CleanedBatch(bytes(batch.view), receipt_ms)
        else:
            yield CleanedBatch(_rebuilt(batch, records, horizon_ms), receipt_ms)

    def finish(self) -> Iterator[CleanedBatch]:
        """Return the batches not yet written."""
        waiting, self._open = self._open, None
        if waiting is None:
            return
        if waiting.original is not None:
            yield CleanedBatch(bytes(waiting.original.view), waiting.receipt_ms)
        else:
            data = _rebuilt(waiting.first, waiting.records, None, last_offset=waiting.last_offset)
            yield CleanedBatch(data, waiting.receipt_ms)

    # --- records ---

    def _keeps(self, batch: BatchView, record: Record) -> bool:
        offsets = self._rules.offsets
        if record.offset >= offsets.end_offset:
            return True
        if record.key is None or record.offset < offsets.get(record.key):
            return False
        return record.value is not None or self._keeps_tombstones(batch)

    def _keeps_tombstones(self, batch: BatchView) -> bool:
        if batch.magic < v2.MAGIC:
            return self.keeps_legacy_tombstones
        horizon_ms = batch.delete_horizon_ms
        return horizon_ms is None or self._rules.now_ms < horizon_ms

    def _horizon_of(self, batch: BatchView, records: list[Record]) -> int | None:
        """Return the delete horizon that the batch must have after this compaction."""
        needs_one = batch.magic == v2.MAGIC and batch.delete_horizon_ms is None
        if needs_one and any(record.value is None for record in records):
            return self._rules.now_ms + self._rules.delete_retention_ms
        return batch.delete_horizon_ms

    # --- whole batches ---

    def _clean_marker(self, batch: BatchView) -> bytes | None:
        is_of_nothing = self._transactions.is_marker_of_nothing(batch)
        horizon_ms = batch.delete_horizon_ms
        if is_of_nothing and horizon_ms is not None and horizon_ms <= self._rules.now_ms:
            return _emptied(batch) if self._is_last_of_producer(batch) else None
        if batch.record_count == 0:
            return bytes(batch.view) if self._is_last_of_producer(batch) else None
        if is_of_nothing and horizon_ms is None:
            return _rebuilt(batch, list(iter_records(batch)), self._rules.now_ms + self._rules.delete_retention_ms)
        return bytes(batch.view)

    def _is_last_of_producer(self, batch: BatchView) -> bool:
        producer = self._rules.producers.producers.get(batch.producer_id) if batch.has_producer_id else None
        if producer is None:
            return False
        if producer.batches:
            return producer.batches[-1].last_offset == batch.last_offset
        return batch.is_control and batch.producer_epoch == producer.epoch

    def _is_mergeable(self, batch: BatchView) -> bool:
        """Return whether a batch may be merged: not with LogAppendTime, a delete horizon, or as one of a producer's
        last batches, by which duplicates are recognised."""
        if batch.timestamp_type is TimestampType.LOG_APPEND_TIME or batch.delete_horizon_ms is not None:
            return False
        if batch.magic < v2.MAGIC:
            return batch.is_compressed
        producer = self._rules.producers.producers.get(batch.producer_id) if batch.has_producer_id else None
        return producer is None or not producer.batches or batch.last_offset < producer.batches[0].first_offset

    def _join(
        self, batch: BatchView, records: list[Record], receipt_ms: int, *, is_whole: bool
    ) -> Iterator[CleanedBatch]:
        size_bytes = sum(map(_record_bytes, records))
        waiting = self._open
        if waiting is not None and waiting.can_take(batch, size_bytes, receipt_ms, self._most_merged_bytes):
            waiting.records += records
            waiting.last_offset = batch.last_offset
            waiting.size_bytes += size_bytes
            waiting.receipt_ms = max(waiting.receipt_ms, receipt_ms)
            waiting.original = None
            return
        yield from self.finish()
        self._open = _Open(batch, records, batch.last_offset, size_bytes, receipt_ms)
        if not is_whole:
            self._open.original = None


def _record_bytes(record: Record) -> int:
    headers = sum(len(key) + len(value or b"") for key, value in record.headers)
    return 12 + len(record.key or b"") + len(record.value or b"") + headers


def _rebuilt(
    batch: BatchView, records: list[Record], horizon_ms: int | None, *, last_offset: int | None = None
) -> bytes:
    """Build a batch with the given records only, in the format, codec and offsets of `batch`."""
    timestamp_type = batch.timestamp_type
    if batch.magic == v0.MAGIC:
        return v0.build_message_set(records, codec=batch.codec)
    if batch.magic == v1.MAGIC:
        return v1.build_message_set(records, codec=batch.codec, timestamp_type=timestamp_type)
    base_timestamp = records[0].timestamp if horizon_ms is None else horizon_ms
    body = bytearray()
    for record in records:
        v2.append_record(body, record, base_offset=batch.stored_offset, base_timestamp=base_timestamp)
    is_stamped = timestamp_type is TimestampType.LOG_APPEND_TIME
    return v2.assemble_batch(
        body if batch.codec is Codec.NONE else compress(batch.codec, bytes(body), magic=v2.MAGIC),
        record_count=len(records),
        base_offset=batch.stored_offset,
        last_offset=batch.last_offset if last_offset is None else last_offset,
        attributes=(batch.attributes & ~v2.DELETE_HORIZON_FLAG) | (v2.DELETE_HORIZON_FLAG if horizon_ms else 0),
        base_timestamp=base_timestamp,
        max_timestamp=batch.max_timestamp if is_stamped else max(record.timestamp for record in records),
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        leader_epoch=batch.leader_epoch,
    )


def _emptied(batch: BatchView) -> bytes:
    """Build the header of a v2 batch without records (Kafka `DefaultRecordBatch.writeEmptyHeader`)."""
    kept_flags = v2.LOG_APPEND_TIME_FLAG | v2.TRANSACTIONAL_FLAG | v2.CONTROL_FLAG
    return v2.assemble_batch(
        b"",
        record_count=0,
        base_offset=batch.stored_offset,
        last_offset=batch.last_offset,
        attributes=batch.attributes & kept_flags,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=batch.max_timestamp,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        leader_epoch=batch.leader_epoch,
    )
