"""ListOffsets: offsets for timestamps; version 0 lists segment boundaries instead."""

from __future__ import annotations

import logging
import os
from collections import Counter
from typing import NamedTuple

from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ....storage.log.partition_log import PartitionLog, TimestampOffset
from ....storage.log.segment import Segment
from ...replicas.fetching.reading import check_exact_leader_epoch
from ...replicas.partition import Partition
from ..contract import RequestContext

logger = logging.getLogger(__name__)

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
FIRST_VERSION_OF = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
"""The request version that introduced each special timestamp (KIP-79, KIP-734, KIP-405, KIP-1005)."""
FIRST_VERSION_WITH_EPOCH = 4
NO_TIMESTAMP, NO_OFFSET, NO_EPOCH = -1, -1, -1
CONSUMER_REPLICA_ID = -1
DEBUGGING_REPLICA_ID = -2
"""The replica id of tools that ask for this replica's log, whichever broker leads."""
FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE = 5
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
ISOLATION_LEVELS = (READ_UNCOMMITTED, READ_COMMITTED)
"""Kafka `IsolationLevel.forId` throws for any other level, and the answer is UNKNOWN_SERVER_ERROR."""


def handle_list_offsets(request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
    """Return one offset for each partition, in version 0 up to ``max_num_offsets`` of them."""
    named = Counter((topic.name, wanted.partition_index) for topic in request.topics for wanted in topic.partitions)
    topics = []
    for topic in request.topics:
        answers = []
        for wanted in topic.partitions:
            is_repeated = context.api_version > 0 and named[topic.name, wanted.partition_index] > 1
            answers.append(_answer(topic.name, wanted, request, context, is_repeated=is_repeated))
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return ListOffsetsResponse(topics=topics)


def _answer(
    topic: str, wanted: ListOffsetsPartition, request: ListOffsetsRequest, context: RequestContext, *, is_repeated: bool
) -> ListOffsetsPartitionResponse:
    try:
        if is_repeated:
            raise BrokerError(ErrorCode.INVALID_REQUEST)
        partition = context.services.partitions.get(topic, wanted.partition_index)
        if request.replica_id != DEBUGGING_REPLICA_ID:
            partition.check_leader()
        if context.api_version == 0:
            _check_old_style(wanted)
            is_consumer = request.replica_id == CONSUMER_REPLICA_ID
            now_ms = context.services.clock.now_ms()
            offsets = _segment_offsets(partition.log, wanted, now_ms, is_consumer=is_consumer)
            return ListOffsetsPartitionResponse(partition_index=partition.index, old_style_offsets=offsets)
        timestamp = wanted.timestamp
        if timestamp < 0 and context.api_version < FIRST_VERSION_OF.get(timestamp, context.api_version + 1):
            raise BrokerError(ErrorCode.UNSUPPORTED_VERSION)
        check_exact_leader_epoch(partition, wanted.current_leader_epoch)
        if request.replica_id == CONSUMER_REPLICA_ID and request.isolation_level not in ISOLATION_LEVELS:
            raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR)
        found = _find(partition, timestamp, _fetchable_end(partition.log, request))
        return ListOffsetsPartitionResponse(
            partition_index=partition.index,
            timestamp=found.timestamp,
            offset=found.offset,
            leader_epoch=found.leader_epoch if context.api_version >= FIRST_VERSION_WITH_EPOCH else NO_EPOCH,
        )
    except BrokerError as error:
        code = error.code
        if code is ErrorCode.OFFSET_NOT_AVAILABLE and context.api_version < FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE:
            code = ErrorCode.LEADER_NOT_AVAILABLE
    except Exception:
        logger.exception("listing offsets of %s-%d failed", topic, wanted.partition_index)
        code = ErrorCode.UNKNOWN_SERVER_ERROR
    return ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=code)


def _check_old_style(wanted: ListOffsetsPartition) -> None:
    """Raise BrokerError as Kafka does: UNSUPPORTED_VERSION, and UNKNOWN_SERVER_ERROR for a negative count."""
    if wanted.timestamp < 0 and wanted.timestamp not in (LATEST, EARLIEST):
        raise BrokerError(ErrorCode.UNSUPPORTED_VERSION)
    if wanted.max_num_offsets < 0:
        raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR)


def _fetchable_end(log: PartitionLog, request: ListOffsetsRequest) -> int:
    """Return the end of the records that the client may fetch, as an exclusive offset."""
    if request.replica_id != CONSUMER_REPLICA_ID:
        return log.log_end_offset
    return log.last_stable_offset if request.isolation_level == READ_COMMITTED else log.high_watermark


def _find(partition: Partition, timestamp: int, end: int) -> TimestampOffset:
    """Return the offset for a timestamp, with all fields -1 if there is none (Kafka:
    Partition.fetchOffsetForTimestamp).

    Raises BrokerError OFFSET_NOT_AVAILABLE while a new leader has not yet advanced its high watermark into its own
    epoch: the previous leader may have reported a larger offset (KIP-207).
    """
    log = partition.log
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return TimestampOffset(NO_TIMESTAMP, log.log_start_offset, _epoch_at_start(partition))
    if timestamp == LATEST_TIERED:
        return TimestampOffset(NO_TIMESTAMP, NO_OFFSET, NO_EPOCH)
    if timestamp != LATEST:
        found = log.max_timestamp_offset() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
        if found is not None and found.offset < end:
            return found
    leadership = partition.leadership
    if leadership is not None and leadership.epoch_start_offset > end:
        raise BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE)
    if timestamp == LATEST:
        return TimestampOffset(NO_TIMESTAMP, end, partition.leader_epoch)
    return TimestampOffset(NO_TIMESTAMP, NO_OFFSET, NO_EPOCH)


def _epoch_at_start(partition: Partition) -> int:
    """Return the leader epoch at the start of the log, or the current leader epoch if the log is empty.

    Kafka records a leader epoch when it begins, this broker with the first record of the epoch.
    """
    log = partition.log
    known = log.epoch_for_offset(log.log_start_offset)
    is_empty = log.log_start_offset == log.log_end_offset
    return partition.leader_epoch if known == NO_EPOCH and is_empty else known


class _Boundary(NamedTuple):
    """A segment's base offset or the log end, with the time of the last write."""

    offset: int
    modified_ms: int


def _segment_offsets(log: PartitionLog, wanted: ListOffsetsPartition, now_ms: int, *, is_consumer: bool) -> list[int]:
    """Return base offsets of segments last written by ``timestamp``, and the log end offset, newest first.

    Source: Kafka UnifiedLog.legacyFetchOffsetsBefore.
    """
    boundaries = [
        _Boundary(max(segment.base_offset, log.log_start_offset), _modified_ms(segment)) for segment in log.segments
    ]
    if log.segments[-1].size_bytes:
        boundaries.append(_Boundary(log.log_end_offset, now_ms))
    if wanted.timestamp == EARLIEST:
        boundaries = boundaries[:1]
    elif wanted.timestamp != LATEST:
        boundaries = [boundary for boundary in boundaries if boundary.modified_ms <= wanted.timestamp]
    offsets = [boundary.offset for boundary in reversed(boundaries)][: wanted.max_num_offsets]
    end = log.high_watermark
    if is_consumer and any(offset > end for offset in offsets):
        return [end, *(offset for offset in offsets if offset <= end)]
    return offsets


def _modified_ms(segment: Segment) -> int:
    return os.stat(segment.path).st_mtime_ns // 1_000_000
