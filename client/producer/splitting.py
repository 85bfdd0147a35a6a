"""The split of a batch that is too large for its topic (KIP-126), into as many parts as necessary at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...protocol.records import v2
from ...protocol.records.record import Record
from .batch_cy import ProducerBatch
from .compression_estimator import CONTINGENCY_FACTOR, CompressionRatioEstimator


def split(batch: ProducerBatch, limit_bytes: int, estimator: CompressionRatioEstimator) -> tuple[ProducerBatch, ...]:
    """Replace a sealed batch by two or more sealed batches of at most `limit_bytes` each, in order.

    Only a part with a single record may be larger. `limit_bytes` counts bytes as they were sent, which are more than
    the batch's payload where a broker requires format v1. The reserved memory and the sequence numbers are moved to
    the parts; deliveries find their part when they are read.
    """
    assert batch.record_count > 1, "one record cannot be split"
    records = list(batch.records())
    payload_bytes = len(batch.payload)
    limit_bytes = min(limit_bytes * payload_bytes // max(batch.sent_bytes, payload_bytes), payload_bytes - 1)
    cuts = _cuts(records, payload_bytes, limit_bytes)
    parts: list[ProducerBatch] = []
    for start, end in zip([0, *cuts], [*cuts, len(records)], strict=True):
        parts += _fitting(batch, records[start:end], limit_bytes, estimator)
    # The parts are no observations: KIP-126 sets the estimate to 1.0 after a split.
    estimator.reset(batch.topic, batch.codec)
    sequence = batch.base_sequence
    share, rest = divmod(batch.reserved_bytes, len(parts))
    for part in parts:
        part.reserved_bytes = share
        if batch.has_sequence:
            part.stamp(batch.producer_id, batch.producer_epoch, sequence)
            sequence = v2.next_sequence(sequence, part.record_count)
    parts[0].reserved_bytes += rest
    batch.replaced_by(tuple(parts))
    return batch.parts


def _fitting(
    batch: ProducerBatch, records: Sequence[Record], limit_bytes: int, estimator: CompressionRatioEstimator
) -> Iterator[ProducerBatch]:
    """Yield the records as sealed batches: one if it fits, else halves of the halves, since the estimate was wrong."""
    part = batch.part(records)
    part.seal(estimator, is_transactional=batch.is_transactional)
    if len(part.payload) <= limit_bytes or len(records) == 1:
        yield part
        return
    middle = _middle(records)
    yield from _fitting(batch, records[:middle], limit_bytes, estimator)
    yield from _fitting(batch, records[middle:], limit_bytes, estimator)


def _cuts(records: Sequence[Record], payload_bytes: int, limit_bytes: int) -> list[int]:
    """Return the indices at which new parts begin: as few parts as the records' shares of the payload allow."""
    sizes = _sizes(records)
    scale = (payload_bytes - v2.HEADER_SIZE) * CONTINGENCY_FACTOR / sum(sizes)
    cuts = []
    filled = float(v2.HEADER_SIZE)
    for index, size in enumerate(sizes):
        if filled + size * scale > limit_bytes and filled > v2.HEADER_SIZE:
            cuts.append(index)
            filled = float(v2.HEADER_SIZE)
        filled += size * scale
    return cuts


def _middle(records: Sequence[Record]) -> int:
    """Return the index at which to split so that both parts are about equal in bytes and neither is empty."""
    sizes = _sizes(records)
    half = sum(sizes) / 2
    taken = 0
    for index, size in enumerate(sizes):
        if taken + size / 2 > half and index > 0:
            return index
        taken += size
    return len(records) - 1


def _sizes(records: Sequence[Record]) -> list[int]:
    """Return about the bytes of each record before compression, at least 1."""
    return [
        len(record.key or b"")
        + len(record.value or b"")
        + sum(len(header.key) + len(header.value or b"") for header in record.headers)
        + 1
        for record in records
    ]
