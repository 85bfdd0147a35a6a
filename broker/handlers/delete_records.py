"""DeleteRecords: give up the oldest records of a partition (KIP-107)."""

from __future__ import annotations

from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ..metadata.internal_topics import is_internal
from ..requests import RequestContext

TO_HIGH_WATERMARK = -1
NO_LOW_WATERMARK = -1


async def handle_delete_records(request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    """Move log start offsets forward; with one replica that is done at once."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name, partitions=[_delete(topic.name, wanted, context) for wanted in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _delete(topic: str, wanted: DeleteRecordsPartition, context: RequestContext) -> DeleteRecordsPartitionResult:
    try:
        if is_internal(topic):
            raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot delete records of internal topic {topic}")
        partition = context.broker.partitions.get(topic, wanted.partition_index)
        log = partition.log
        if not log.config.is_deleted_by_retention:
            raise BrokerError(ErrorCode.POLICY_VIOLATION, "the topic's cleanup.policy does not contain delete")
        offset = log.high_watermark if wanted.offset == TO_HIGH_WATERMARK else wanted.offset
        if not 0 <= offset <= log.high_watermark:
            raise BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE)
        low_watermark = log.advance_log_start(offset)
        partition.wake_waiters()
    except BrokerError as error:
        return DeleteRecordsPartitionResult(
            partition_index=wanted.partition_index, low_watermark=NO_LOW_WATERMARK, error_code=error.code
        )
    return DeleteRecordsPartitionResult(partition_index=wanted.partition_index, low_watermark=low_watermark)
