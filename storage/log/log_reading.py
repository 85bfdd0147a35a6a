"""Finding the bytes of a log that a read asks for."""

from __future__ import annotations

from ...protocol.records import v0
from ...protocol.records.receipts import NO_RECEIPTS, Receipts
from .log_segments import LogSegments
from .log_slice import LogSlice
from .segment import Place, Segment


def read_segment(
    segments: LogSegments,
    offset: int,
    max_bytes: int,
    bound: int,
    at_least_one: bool,
    known: Place | None,
    tells_receipts: bool,
) -> LogSlice:
    """Read bytes of one segment, from the batch that holds `offset` to the offset `bound` (exclusive).

    At most `max_bytes`, but with `at_least_one` the first batch whole; only bytes that are good. `known` is the place
    in the active segment where the caller knows it. `tells_receipts`: whether readers may see when v0 messages came.
    Raises OSError, SegmentDamagedError.
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
    receipts = _receipts(segment, start, start + size) if tells_receipts and magics & 1 << v0.MAGIC else NO_RECEIPTS
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


def _receipts(segment: Segment, start: int, end: int) -> Receipts:
    runs: list[tuple[int, int]] = []
    for entry in segment.looked_up(lambda index: index.entries_for(start, end)):
        if not runs or entry.receipt != runs[-1][1]:
            runs.append((max(entry.position - start, 0), entry.receipt))
    return Receipts(runs)
