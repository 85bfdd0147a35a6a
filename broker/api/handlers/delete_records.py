"""DeleteRecords: deletion of the oldest records of a partition (KIP-107)."""

from __future__ import annotations

from functools import partial
from typing import TypeAlias

from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.internal_topics import is_internal
from ....protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ...replicas.partition import Partition
from ...server.pending import Pending, all_completed, completed
from ..contract import RequestContext

TO_HIGH_WATERMARK = -1
NO_LOW_WATERMARK = -1


def handle_delete_records(request: DeleteRecordsRequest, context: RequestContext) -> Pending[DeleteRecordsResponse]:
    """Delete records before an offset on the leader, and wait for the followers (Kafka: DelayedDeleteRecords)."""
    begun = [
        (topic.name, [_begin(topic.name, wanted, context) for wanted in topic.partitions]) for topic in request.topics
    ]
    timeout_s = request.timeout_ms / 1000
    topics = [
        all_completed([_finish(answer, timeout_s) for answer in answers]).map(partial(_topic_result, name))
        for name, answers in begun
    ]
    return all_completed(topics).map(lambda results: DeleteRecordsResponse(topics=results))


def _topic_result(name: str, partitions: list[DeleteRecordsPartitionResult]) -> DeleteRecordsTopicResult:
    return DeleteRecordsTopicResult(name=name, partitions=partitions)


Begun: TypeAlias = tuple[Partition, int] | DeleteRecordsPartitionResult
"""A partition whose leader has deleted the records below an offset, with that offset; or the failed result."""


def _begin(topic: str, wanted: DeleteRecordsPartition, context: RequestContext) -> Begun:
    try:
        if is_internal(topic):
            raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot delete records of internal topic {topic}")
        partition = context.services.partitions.led(topic, wanted.partition_index)
        log = partition.log
        if not log.config.is_deleted_by_retention:
            raise BrokerError(ErrorCode.POLICY_VIOLATION, "the topic's cleanup.policy does not contain delete")
        offset = log.high_watermark if wanted.offset == TO_HIGH_WATERMARK else wanted.offset
        if not 0 <= offset <= log.high_watermark:
            raise BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE)
        log.advance_log_start(offset)
        partition.wake_waiters()
    except BrokerError as error:
        return _failure(wanted.partition_index, error)
    return partition, offset


def _finish(begun: Begun, timeout_s: float) -> Pending[DeleteRecordsPartitionResult]:
    if isinstance(begun, DeleteRecordsPartitionResult):
        return completed(begun)
    partition, offset = begun

    def result(code: ErrorCode) -> DeleteRecordsPartitionResult:
        if code:
            return _failure(partition.index, BrokerError(code))
        return DeleteRecordsPartitionResult(partition_index=partition.index, low_watermark=partition.low_watermark)

    return partition.deleted_everywhere(offset, timeout_s).map(result)


def _failure(index: int, error: BrokerError) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=NO_LOW_WATERMARK, error_code=error.code)
