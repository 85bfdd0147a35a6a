"""The search for the bytes of a log that a read returns."""

from __future__ import annotations

import os

from ...protocol.records import v0
from ...protocol.records.receipts import NO_RECEIPTS, Receipts
from .log_segments import LogSegments
from .log_slice import LogSlice
from .segment import Place, Segment

HEADS_BYTES = 8 * 1024
"""The number of bytes that are read to find the end of the last complete batch: two index entries' distance."""


def read_segment(
    segments: LogSegments,
    offset: int,
    max_bytes: int,
    bound: int,
    at_least_one: bool,
    known: Place | None,
    with_receipts: bool,
) -> LogSlice:
    """Return the slice of one segment from the batch that contains `offset` up to the offset `bound` (exclusive).

    The slice has at most `max_bytes`, but with `at_least_one` at least the whole first batch, and it ends before the
    first damaged batch. `known` is the place of `offset` in the active segment, if the caller knows it.
    `with_receipts` adds the receipt times of v0 messages. Raises OSError, SegmentDamagedError.
    """
    segment, place = segments.active, known
    if place is None and offset >= segment.base_offset:
        place = segment.locate(offset)
    elif place is None:
        segment, place = segments.locate(offset)
    if place is None:
        return LogSlice(None, 0, 0, start_offset=offset)
    start = place.position
    end = segment.size_bytes
    if bound < segment.next_offset:
        at_bound = segment.locate(bound)
        end = end if at_bound is None else at_bound.position
    size = min(end - start, max(max_bytes, place.size_bytes) if at_least_one else max_bytes)
    if size <= 0:
        return LogSlice(None, 0, 0, start_offset=offset)
    size = min(size, segment.verify(start, start + size) - start)
    end_offset = min(bound, segment.next_offset)
    magics = segment.magics
    receipts = (
        receipts_between(segment, start, start + size) if with_receipts and magics & 1 << v0.MAGIC else NO_RECEIPTS
    )
    file = segment.file.acquire()
    return LogSlice(
        file,
        start,
        size,
        start_offset=offset,
        end_offset=end_offset,
        magics=magics,
        receipts=receipts,
        segment=segment,
    )


def receipts_between(segment: Segment, start: int, end: int) -> Receipts:
    """Return the receipt times of the bytes from `start` to `end`, by position after `start`. Raises OSError."""
    runs: list[tuple[int, int]] = []
    for entry in segment.looked_up(lambda index: index.entries_for(start, end)):
        if not runs or entry.receipt != runs[-1][1]:
            runs.append((max(entry.position - start, 0), entry.receipt))
    return Receipts(runs)


def cut_incomplete_batch(log_slice: LogSlice) -> None:
    """Cut a slice that was just read after its last complete batch, if it has a complete one.

    The index tells where to begin, so that few batches are passed. Raises OSError.
    """
    segment = log_slice.segment
    if segment is None or not log_slice.size_bytes:
        return
    start = log_slice.position
    end = start + log_slice.size_bytes
    entry = segment.index_entry_for(end - 1)
    position = start if entry is None else max(start, entry.position)
    heads, heads_at = b"", position
    while end - position >= v0.OFFSET_AND_SIZE.size:
        if heads_at + len(heads) < position + v0.OFFSET_AND_SIZE.size:
            heads, heads_at = os.pread(log_slice.descriptor, min(HEADS_BYTES, end - position), position), position
        _, size = v0.OFFSET_AND_SIZE.unpack_from(heads, position - heads_at)
        batch_end = position + v0.OFFSET_AND_SIZE.size + size
        if size <= 0 or batch_end > end:
            break
        position = batch_end
    if position > start:
        log_slice.cut(position - start)
