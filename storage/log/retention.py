"""Which records a log may forget: by age, by size, and without waiting for a segment to be full (KAFKA-979).

Time: whole segments go whose newest record is older than `retention.ms`, head to tail; in the first one that stays, the
log start moves to the first batch that is young enough, found by binary search. Records without a timestamp are as old
as their file's last change, and only go with their whole segment. Size: whole segments, as in Kafka
(`UnifiedLog.deleteRetentionSizeBreachedSegments`). Nothing above the high watermark goes.
"""

from __future__ import annotations

import logging

from .log_config import UNLIMITED
from .partition_log import PartitionLog
from .segment import Segment

logger = logging.getLogger(__name__)


def apply_retention(log: PartitionLog, now_ms: int) -> int:
    """Move the log's start as its settings ask; returns the log start offset. Raises BrokerError, OSError."""
    config = log.config
    if not config.is_deleted_by_retention or log.log_start_offset == log.log_end_offset:
        return log.log_start_offset
    keep_from = log.log_start_offset
    if config.retention_ms != UNLIMITED:
        keep_from = max(keep_from, first_offset_younger_than(log, now_ms - config.retention_ms))
    if config.retention_bytes != UNLIMITED:
        keep_from = max(keep_from, first_offset_within(log, config.retention_bytes))
    keep_from = min(keep_from, log.high_watermark)
    if keep_from == log.log_start_offset:
        return keep_from
    if keep_from == log.log_end_offset:
        # Only a segment that is no longer written can be removed.
        log.roll()
    logger.info("%s-%d: retention moves the log start to offset %d", log.topic, log.partition, keep_from)
    return log.advance_log_start(keep_from)


def first_offset_younger_than(log: PartitionLog, cutoff_ms: int) -> int:
    """Return the first offset that time retention keeps: no batch before the offset is of `cutoff_ms` or later.

    Raises OSError, SegmentDamagedError.
    """
    for segment in log.segments:
        segment.load()
        if segment.newest_ms() >= cutoff_ms:
            return segment.base_offset if segment.max_timestamp < 0 else _first_offset_since(segment, cutoff_ms)
    return log.log_end_offset


def _first_offset_since(segment: Segment, timestamp_ms: int) -> int:
    """Return the base offset of the first batch of `timestamp_ms` or later or no time, else the segment's end."""
    for batch in segment.batches_from(segment.position_before_timestamp(timestamp_ms)):
        found = segment.timestamp_of(batch)
        if found >= timestamp_ms or (found < 0 and batch.record_count != 0):
            return batch.base_offset
    return segment.next_offset


def first_offset_within(log: PartitionLog, limit_bytes: int) -> int:
    """Return the first offset that size retention keeps: the remaining segments have at least the limit's size."""
    surplus = log.size_bytes - limit_bytes
    for segment in log.segments[:-1]:
        segment.load()
        surplus -= segment.size_bytes
        if surplus < 0:
            return segment.base_offset
    return log.segments[-1].base_offset
