"""The replay of producer state: the newest snapshot, then the batches after it.

The replay also restores entries of the transaction indexes that a crash has removed.
Source: Kafka `UnifiedLog.rebuildProducerState`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ...protocol.records import v2
from ...protocol.records.batches import BatchView, iter_batches, iter_records
from ...protocol.records.control import EndTransactionMarker, read_end_transaction_marker
from ..index.transaction_index import AbortedTransaction
from ..log.log_segments import LogSegments
from ..log.segment import Segment
from .producer_state import ProducerBatch, ProducerStates
from .snapshot_files import SnapshotFiles


class LogExtent(NamedTuple):
    """The log start offset, high watermark and log end offset of a log."""

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
    """Set `producers` to the state at the log's end. Raises OSError.

    `had_none`: nothing was written since the log was closed without producers.
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
    for aborted in replay_batches(producers, iter_batches(segment.map(position)), start_offset):
        segment.transactions.add(aborted)


def replay_batches(
    producers: ProducerStates, batches: Iterable[BatchView], start_offset: int
) -> Iterator[AbortedTransaction]:
    """Record the batches from an offset on in `producers`; yield each transaction that one of them aborts.

    Raises BrokerError INVALID_RECORD for a malformed marker.
    """
    for batch in batches:
        if not batch.has_producer_id or batch.last_offset < start_offset:
            continue
        if not batch.is_control:
            producers.record_data(batch)
            continue
        marker = marker_of(batch)
        aborted = _end_transaction(producers, batch, marker) if marker is not None else None
        if aborted is not None:
            yield aborted


def record_transaction_end(
    producers: ProducerStates, segment: Segment, batch: ProducerBatch, marker: EndTransactionMarker
) -> None:
    """Record the end of a transaction whose marker is in `segment`, also in its index if aborted. Raises OSError."""
    aborted = _end_transaction(producers, batch, marker)
    if aborted is not None:
        segment.transactions.add(aborted)


def _end_transaction(
    producers: ProducerStates, batch: ProducerBatch, marker: EndTransactionMarker
) -> AbortedTransaction | None:
    completed = producers.record_marker(batch, marker)
    if completed is None or not completed.is_aborted:
        return None
    stable_offset = producers.last_stable_offset_after(completed)
    return AbortedTransaction(completed.producer_id, completed.first_offset, completed.last_offset, stable_offset)


def marker_of(batch: BatchView) -> EndTransactionMarker | None:
    """Read a control batch's transaction marker, None for other kinds. Raises BrokerError INVALID_RECORD."""
    record = next(iter_records(batch), None)
    return None if record is None else read_end_transaction_marker(record)
