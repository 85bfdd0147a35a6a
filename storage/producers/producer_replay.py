"""Producer state from disk: the newest snapshot, then the batches that came after it.

On the way the transaction indexes get what a crash has taken from them.
Source: Kafka `UnifiedLog.rebuildProducerState`.
"""

from __future__ import annotations

from typing import NamedTuple

from ...protocol.records import v2
from ...protocol.records.batches import BatchView, iter_records, read_batch
from ...protocol.records.control import EndTransactionMarker, read_end_transaction_marker
from ..index.transaction_index import AbortedTransaction
from ..log.log_segments import LogSegments
from ..log.segment import Segment
from .producer_state import ProducerBatch, ProducerStates
from .snapshot_files import SnapshotFiles


class LogExtent(NamedTuple):
    """Where a log begins, is replicated to, and ends (exclusive)."""

    start_offset: int
    high_watermark: int
    end_offset: int


def load_producers(
    producers: ProducerStates,
    segments: LogSegments,
    snapshots: SnapshotFiles,
    extent: LogExtent,
    *,
    had_none: bool = False,
) -> None:
    """Make `producers` what they are at the log's end. Raises OSError.

    `had_none`: nothing was written since the log was closed, and no producer was known then.
    """
    start_offset, high_watermark, end_offset = extent
    producers.clear()
    if start_offset == end_offset or had_none:
        return
    exact = snapshots.exact(end_offset)
    if exact is not None:
        producers.restore(exact)
        return
    latest = snapshots.latest(segments.base_offset, end_offset)
    replay_from, snapshot = latest or (start_offset, [])
    producers.restore(snapshot)
    for segment in segments.since(replay_from):
        if segment.magics & (1 << v2.MAGIC):
            _replay(producers, segment, replay_from)
    producers.high_watermark_advanced(high_watermark)


def _replay(producers: ProducerStates, segment: Segment, start_offset: int) -> None:
    position = 0
    if start_offset > segment.base_offset:
        place = segment.locate(start_offset)
        if place is None:
            return
        position = place.position
    buffer = segment.map(position)
    position = 0
    while (batch := read_batch(buffer, position)) is not None:
        position = batch.end
        if not batch.has_producer_id or batch.last_offset < start_offset:
            continue
        if not batch.is_control:
            producers.record_data(batch)
            continue
        marker = marker_of(batch)
        if marker is not None:
            record_transaction_end(producers, segment, batch, marker)


def record_transaction_end(
    producers: ProducerStates, segment: Segment, batch: ProducerBatch, marker: EndTransactionMarker
) -> None:
    """Note the end of a transaction whose marker is in `segment`, in its index as well if aborted. Raises OSError."""
    completed = producers.record_marker(batch, marker)
    if completed is not None and completed.is_aborted:
        stable_offset = producers.last_stable_offset_after(completed)
        segment.transactions.add(
            AbortedTransaction(completed.producer_id, completed.first_offset, completed.last_offset, stable_offset)
        )


def marker_of(batch: BatchView) -> EndTransactionMarker | None:
    """Read a control batch's transaction marker, None for other kinds. Raises BrokerError INVALID_RECORD."""
    record = next(iter_records(batch), None)
    return None if record is None else read_end_transaction_marker(record)
