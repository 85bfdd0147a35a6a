"""Retention by age and by size, without waiting until a segment is full (KAFKA-979).

By age: segments whose newest record is older than `retention.ms` are deleted, oldest first. In the first remaining
segment the log start advances to the first batch that is not expired, found by binary search. Records without a
timestamp have the age of their file's modification time and are deleted only with their whole segment. By size: whole
segments, as in Kafka (`UnifiedLog.deleteRetentionSizeBreachedSegments`). Records above the high watermark are kept.

With `gregor.retention.by=receipt` the age is the time since this broker received the records, so wrong clocks of
producers neither delete records at once nor keep them for ever. The index has these receipt times (tag 0, see
`index_format`).
"""

from __future__ import annotations

import logging

from .log_config import UNLIMITED
from .partition_log import PartitionLog
from .segment import Segment

logger = logging.getLogger(__name__)


def apply_retention(log: PartitionLog, now_ms: int) -> int:
    """Advance the log start according to the log's settings; return the log start offset.

    Raises BrokerError, OSError.
    """
    config = log.config
    if not config.is_deleted_by_retention or log.log_start_offset == log.log_end_offset:
        return log.log_start_offset
    keep_from = log.log_start_offset
    if config.retention_ms != UNLIMITED:
        first_kept = first_offset_received_since if config.is_retained_by_receipt else first_offset_younger_than
        keep_from = max(keep_from, first_kept(log, now_ms - config.retention_ms))
    if config.retention_bytes != UNLIMITED:
        keep_from = max(keep_from, first_offset_within(log, config.retention_bytes))
    keep_from = min(keep_from, log.high_watermark)
    if keep_from == log.log_start_offset:
        return keep_from
    if keep_from == log.log_end_offset:
        # Only a segment that is no longer active can be deleted.
        log.roll()
    logger.info("%s-%d: retention moves the log start to offset %d", log.topic, log.partition, keep_from)
    return log.advance_log_start(keep_from)


def first_offset_younger_than(log: PartitionLog, cutoff_ms: int) -> int:
    """Return the first offset that time retention keeps: all batches before this offset are older than `cutoff_ms`.

    Raises OSError, SegmentDamagedError.
    """
    for segment in log.segments:
        segment.load()
        if segment.newest_ms() >= cutoff_ms:
            return segment.base_offset if segment.max_timestamp < 0 else _first_offset_since(segment, cutoff_ms)
    return log.log_end_offset


def _first_offset_since(segment: Segment, timestamp_ms: int) -> int:
    """Return the offset of the first batch not older than `timestamp_ms` or without a time, or the segment's end."""
    for batch in segment.batches_from(segment.position_before_timestamp(timestamp_ms)):
        found = segment.timestamp_of(batch)
        if found >= timestamp_ms or (found < 0 and batch.record_count != 0):
            return batch.base_offset
    return segment.next_offset


def first_offset_received_since(log: PartitionLog, cutoff_ms: int) -> int:
    """Return the first offset that retention by receipt time keeps: all records before it were received earlier.

    In a segment without receipt times the file's modification time counts, for the whole segment. Raises OSError.
    """
    for segment in log.segments:
        segment.load()
        if segment.newest_receipt_ms() >= cutoff_ms:
            found = segment.looked_up(lambda index: index.first_offset_received_since(cutoff_ms))
            return segment.base_offset if found is None else found
    return log.log_end_offset


def first_offset_within(log: PartitionLog, limit_bytes: int) -> int:
    """Return the first offset that size retention keeps: the remaining segments have at least the size of the limit."""
    surplus = log.size_bytes - limit_bytes
    for segment in log.segments[:-1]:
        segment.load()
        surplus -= segment.size_bytes
        if surplus < 0:
            return segment.base_offset
    return log.segments[-1].base_offset
