"""The aborted transactions of a segment, found again in its batches where its index of them is not what was written."""

from __future__ import annotations

import logging
from contextlib import suppress

from ...protocol.errors import BrokerError
from ..index.transaction_index import AbortedTransaction, TransactionIndexDamagedError
from ..log.log_segments import LogSegments
from ..log.segment import Segment, SegmentDamagedError
from ..producers.producer_replay import marker_of
from ..producers.producer_state import ProducerStates
from ..producers.snapshot_files import SnapshotFiles

logger = logging.getLogger(__name__)


def aborted_transactions(
    segments: LogSegments, snapshots: SnapshotFiles, first_offset: int, last_offset: int
) -> list[AbortedTransaction]:
    """Return the result of `LogSegments.aborted_transactions`, rebuilding damaged indexes. Raises OSError."""
    try:
        return segments.aborted_transactions(first_offset, last_offset)
    except TransactionIndexDamagedError:
        mend_transactions(segments, snapshots)
    return segments.aborted_transactions(first_offset, last_offset)


def mend_transactions(segments: LogSegments, snapshots: SnapshotFiles) -> None:
    """Write each transaction index of a log anew that is not what was written. Raises OSError."""
    for segment in segments.all:
        segment.load()
        try:
            segment.transactions.entries()
        except TransactionIndexDamagedError as fault:
            logger.warning("%s: building it anew from the log", fault)
            segment.transactions.rewrite(_find_aborted(segments, snapshots, segment))


def _find_aborted(segments: LogSegments, snapshots: SnapshotFiles, segment: Segment) -> list[AbortedTransaction]:
    """Find the aborted transactions that ended in `segment`, up to a damaged batch.

    They may have begun in earlier segments: the producer snapshot at its beginning knows of those, or they are read
    too. Raises OSError.
    """
    producers = ProducerStates()
    lowest = segments.base_offset
    replay_from, known = snapshots.latest(lowest, segment.base_offset) or (lowest, [])
    producers.restore(known)
    found: list[AbortedTransaction] = []
    with suppress(SegmentDamagedError, BrokerError):
        for each in segments.since(replay_from):
            found.clear()
            _replay(producers, each, replay_from, found)
            if each is segment:
                break
    return found


def _replay(producers: ProducerStates, segment: Segment, start_offset: int, found: list[AbortedTransaction]) -> None:
    for batch in segment.batches_from(0):
        if not batch.has_producer_id or batch.last_offset < start_offset:
            continue
        if not batch.is_control:
            producers.record_data(batch)
            continue
        marker = marker_of(batch)
        completed = producers.record_marker(batch, marker) if marker is not None else None
        if completed is not None and completed.is_aborted:
            stable_offset = producers.last_stable_offset_after(completed)
            found.append(
                AbortedTransaction(completed.producer_id, completed.first_offset, completed.last_offset, stable_offset)
            )
