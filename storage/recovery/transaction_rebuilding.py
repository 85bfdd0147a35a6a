"""The rebuilding of damaged transaction indexes from the batches of the segments."""

from __future__ import annotations

import logging
from contextlib import suppress

from ...protocol.errors import BrokerError
from ..index.transaction_index import AbortedTransaction, TransactionIndexDamagedError
from ..log.log_segments import LogSegments
from ..log.segment import Segment, SegmentDamagedError
from ..producers.producer_replay import replay_batches
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
    """Rebuild each damaged transaction index of a log. Raises OSError."""
    for segment in segments.all:
        segment.load()
        try:
            segment.transactions.entries()
        except TransactionIndexDamagedError as fault:
            logger.warning("%s: rebuilding it from the log", fault)
            segment.transactions.rewrite(_find_aborted(segments, snapshots, segment))


def _find_aborted(segments: LogSegments, snapshots: SnapshotFiles, segment: Segment) -> list[AbortedTransaction]:
    """Return the aborted transactions that ended in `segment`, up to the first damaged batch.

    They may have begun in earlier segments, so the producer snapshot at the segment's start is used, or the earlier
    segments are read too. Raises OSError.
    """
    producers = ProducerStates()
    lowest = segments.base_offset
    replay_from, known = snapshots.latest(lowest, segment.base_offset) or (lowest, [])
    producers.restore(known)
    found: list[AbortedTransaction] = []
    with suppress(SegmentDamagedError, BrokerError):
        for each in segments.since(replay_from):
            found.clear()
            found.extend(replay_batches(producers, each.batches_from(0), replay_from))
            if each is segment:
                break
    return found
