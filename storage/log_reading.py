"""Finding the bytes of a log that a read asks for."""

from __future__ import annotations

from .log_segments import LogSegments
from .log_slice import LogSlice
from .segment import Place


def read_segment(
    segments: LogSegments,
    offset: int,
    max_bytes: int,
    bound: int,
    *,
    at_least_one: bool,
    known: Place | None = None,
) -> LogSlice:
    """Bytes of one segment from the batch that holds `offset` on, none at or beyond the offset `bound`.

    At most `max_bytes`, but with `at_least_one` the first batch whole; only bytes that are good. `known` is the place
    in the active segment where the caller knows it. Raises OSError, SegmentDamagedError.
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
    file = segment.file.acquire()
    return LogSlice(file, start, size, start_offset=offset, end_offset=end_offset, magics=segment.magics)
