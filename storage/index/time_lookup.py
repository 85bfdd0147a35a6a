"""Look-ups of single records by time: one binary search, then one decompressed batch.

v0 messages have no timestamps; their receipt times are used.
"""

from __future__ import annotations

from typing import NamedTuple

from ...protocol.records import v0
from ...protocol.records.batches import iter_records
from ..log.log_segments import LogSegments
from ..log.segment import Segment


class TimestampOffset(NamedTuple):
    """A record found by time: its timestamp in milliseconds, its offset, the leader epoch of its batch (-1: none)."""

    timestamp: int
    offset: int
    leader_epoch: int


def first_record_since(segments: LogSegments, timestamp_ms: int, log_start_offset: int) -> TimestampOffset | None:
    """Return the first record from `log_start_offset` on with a timestamp of `timestamp_ms` or later.

    Raises OSError, SegmentDamagedError.
    """
    for segment in segments.since(log_start_offset):
        if segment.max_timestamp >= timestamp_ms:
            found = _first_in_segment(segment, timestamp_ms, log_start_offset)
            if found is not None:
                return found
    return None


def newest_record(segments: LogSegments, log_start_offset: int) -> TimestampOffset | None:
    """Return the first record that has the largest timestamp (KIP-734); None if no record has a timestamp.

    Raises OSError, SegmentDamagedError.
    """
    largest = -1
    for segment in segments.since(log_start_offset):
        if segment.base_offset < log_start_offset and segment.max_timestamp > largest:
            # The segment's largest timestamp may belong to a deleted record.
            largest = max(largest, _largest_timestamp_from(segment, log_start_offset))
        else:
            largest = max(largest, segment.max_timestamp)
    return None if largest < 0 else first_record_since(segments, largest, log_start_offset)


def _largest_timestamp_from(segment: Segment, log_start_offset: int) -> int:
    largest = -1
    place = segment.locate(log_start_offset)
    for batch in segment.batches_from(segment.size_bytes if place is None else place.position):
        timestamp = segment.timestamp_of(batch)
        if timestamp > largest and batch.magic != v0.MAGIC and batch.base_offset < log_start_offset:
            kept = (record.timestamp for record in iter_records(batch) if record.offset >= log_start_offset)
            timestamp = max(kept, default=-1)
        largest = max(largest, timestamp)
    return largest


def _first_in_segment(segment: Segment, timestamp_ms: int, log_start_offset: int) -> TimestampOffset | None:
    for batch in segment.batches_from(segment.position_before_timestamp(timestamp_ms)):
        batch_timestamp = segment.timestamp_of(batch)
        if batch_timestamp < timestamp_ms or batch.last_offset < log_start_offset:
            continue
        for record in iter_records(batch):
            timestamp = batch_timestamp if batch.magic == v0.MAGIC else record.timestamp
            if timestamp >= timestamp_ms and record.offset >= log_start_offset:
                return TimestampOffset(timestamp, record.offset, batch.leader_epoch)
    return None
