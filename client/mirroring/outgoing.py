"""The conversion of a source's batch for the target.

A batch is sent unchanged, except for the producer and flags in a v2 header, wherever possible. It is rebuilt, which
costs a decompression and a compression, only

- where compaction has removed records of a v2 batch and the target numbers records itself: the target would refuse the
  relative offsets. (v0 and v1 sets are sent unchanged: a Gregor broker resets their offsets, Kafka assigns new ones.)
- where the source has set its own time (LogAppendTime), which only a broker may do: the records keep that time as
  their own;
- where the batch holds records before the requested offset, or is larger than the target's topic allows;
- where the batch is v0 or v1 and the target's broker does not accept these formats any more (Kafka 4).

Without the tags of a Gregor source a v0 or v1 set is also decompressed, to know its first offset and number of records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ...protocol.records import v0, v2
from ...protocol.records.batches import BatchView, iter_records
from ...protocol.records.compression import Codec
from ...protocol.records.record import Record, TimestampType
from ...protocol.records.tag_runs import NO_COUNT, NO_TAG_RUNS, TagRuns
from ..consumer.consumer_record import INFLATION_LIMIT_BYTES
from ..producer.raw_batch import produced_again

MAX_RUN_BYTES = 512 * 1024
"""The largest size of uncompressed v0 or v1 messages that are sent together."""


@dataclass(frozen=True, slots=True)
class TargetRules:
    """The limits of the target: `max_batch_bytes` is its topic's max.message.bytes."""

    max_batch_bytes: int
    takes_old_formats: bool


@dataclass(slots=True)
class Outgoing:
    """A unit to be sent: `record_count` records, which are all that remains of the source up to `source_end`.

    `source` is a v2 batch that only needs a new header, `payload` the bytes of anything else.
    """

    record_count: int
    source_end: int
    size_bytes: int
    is_legacy: bool
    source: BatchView | None = None
    payload: bytes | bytearray = b""

    def with_producer(self, producer_id: int, producer_epoch: int, base_sequence: int) -> bytes:
        """Return the bytes to send, with this producer id, epoch and sequence where the format has these fields."""
        view = self.source
        if view is None:
            if self.is_legacy:
                return bytes(self.payload)
            view = BatchView(self.payload, 0, len(self.payload), v2.MAGIC)
        return produced_again(view, producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=base_sequence)


def renumbered(
    batches: Iterable[BatchView], first_offset: int, rules: TargetRules, tags: TagRuns = NO_TAG_RUNS
) -> Iterator[Outgoing]:
    """Yield the batches for a target that numbers the records itself. Raises BrokerError for damaged batches."""
    run: Outgoing | None = None
    for batch in batches:
        is_plain_message = batch.magic < v2.MAGIC and not batch.is_compressed and _goes_as_it_is(batch, rules)
        if is_plain_message and batch.last_offset >= first_offset:
            if run is not None and not _may_join(run, batch):
                yield run
                run = None
            run = _joined(run, batch)
            continue
        if run is not None:
            yield run
            run = None
        yield from _renumbered(batch, first_offset, rules, tags)
    if run is not None:
        yield run


def _renumbered(batch: BatchView, first_offset: int, rules: TargetRules, tags: TagRuns) -> Iterator[Outgoing]:
    if batch.magic == v2.MAGIC and batch.record_count == 0:
        # Compaction keeps an empty batch to preserve its producer's last sequence number.
        return
    begins_before = batch.stored_offset < first_offset if batch.magic == v2.MAGIC else batch.last_offset < first_offset
    if not _goes_as_it_is(batch, rules) or begins_before:
        yield from _rebuilt(batch, first_offset, rules)
    elif batch.magic == v2.MAGIC:
        yield Outgoing(batch.record_count or 0, batch.last_offset + 1, batch.size_bytes, False, source=batch)
    else:
        first, count = _first_and_count(batch, tags)
        if first < first_offset:
            yield from _rebuilt(batch, first_offset, rules)
        else:
            yield Outgoing(count, batch.last_offset + 1, batch.size_bytes, True, payload=bytes(batch.view))


def _first_and_count(batch: BatchView, tags: TagRuns) -> tuple[int, int]:
    """Return the first offset and the number of records of a v0 or v1 batch, from its tags or else from its records."""
    run = tags.of(batch)
    if run is not None and run.num_messages != NO_COUNT:
        return run.first_offset, run.num_messages
    records = list(iter_records(batch, limit_bytes=INFLATION_LIMIT_BYTES))
    return records[0].offset, len(records)


def _goes_as_it_is(batch: BatchView, rules: TargetRules) -> bool:
    if batch.timestamp_type is TimestampType.LOG_APPEND_TIME or batch.size_bytes > rules.max_batch_bytes:
        return False
    if batch.magic < v2.MAGIC:
        return rules.takes_old_formats
    return batch.last_offset - batch.stored_offset + 1 == batch.record_count


def _may_join(run: Outgoing, batch: BatchView) -> bool:
    return run.payload[v0.MAGIC_AT] == batch.magic and run.size_bytes + batch.size_bytes <= MAX_RUN_BYTES


def _joined(run: Outgoing | None, batch: BatchView) -> Outgoing:
    if run is None:
        return Outgoing(1, batch.last_offset + 1, batch.size_bytes, True, payload=bytearray(batch.view))
    run.record_count += 1
    run.source_end = batch.last_offset + 1
    run.size_bytes += batch.size_bytes
    run.payload += batch.view
    return run


def _rebuilt(batch: BatchView, first_offset: int, rules: TargetRules) -> Iterator[Outgoing]:
    """Rebuild the records from `first_offset` on in new v2 batches, halved until the target accepts the size."""
    records = [
        record for record in iter_records(batch, limit_bytes=INFLATION_LIMIT_BYTES) if record.offset >= first_offset
    ]
    if records:
        yield from _built(records, batch.codec, batch.last_offset + 1, rules)


def _built(records: list[Record], codec: Codec, source_end: int, rules: TargetRules) -> Iterator[Outgoing]:
    numbered = [record._replace(offset=index) for index, record in enumerate(records)]
    payload = v2.build_batch(numbered, codec=codec)
    if len(payload) > rules.max_batch_bytes and len(records) > 1:
        middle = len(records) // 2
        yield from _built(records[:middle], codec, records[middle - 1].offset + 1, rules)
        yield from _built(records[middle:], codec, source_end, rules)
    else:
        yield Outgoing(len(records), source_end, len(payload), False, payload=payload)


def with_offsets_kept(batch: BatchView, first_offset: int, tags: TagRuns = NO_TAG_RUNS) -> bytes:
    """Return the bytes for a target that keeps the source's offsets: a v2 header without its producer and flags.

    The result is empty if compaction has left no records in the batch. Raises BrokerError for damaged batches.
    """
    if batch.magic == v2.MAGIC:
        if batch.record_count == 0:
            return b""
        if batch.stored_offset >= first_offset:
            return produced_again(batch, base_offset=batch.stored_offset)
    elif not batch.is_compressed:
        return bytes(batch.view)
    if batch.magic < v2.MAGIC and _first_and_count(batch, tags)[0] >= first_offset:
        return bytes(batch.view)
    kept = [
        record for record in iter_records(batch, limit_bytes=INFLATION_LIMIT_BYTES) if record.offset >= first_offset
    ]
    if not kept:
        return b""
    return v2.build_batch(
        kept,
        base_offset=kept[0].offset,
        last_offset=batch.last_offset,
        codec=batch.codec,
        timestamp_type=batch.timestamp_type if batch.magic > v0.MAGIC else TimestampType.CREATE_TIME,
        max_timestamp=batch.max_timestamp,
    )
