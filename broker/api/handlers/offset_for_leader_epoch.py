"""OffsetForLeaderEpoch: the end offset of a leader epoch, for clients that detect truncation (KIP-320)."""

from __future__ import annotations

from ....protocol.errors import BrokerError
from ....protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from ...replicas.fetching.reading import check_exact_leader_epoch
from ..contract import RequestContext


async def handle_offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    """Return the largest known epoch not above the requested one, and its end offset; both -1 if there is none."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_answer(topic.topic, wanted, context) for wanted in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _answer(topic: str, wanted: OffsetForLeaderPartition, context: RequestContext) -> EpochEndOffset:
    try:
        partition = context.services.partitions.get(topic, wanted.partition)
        check_exact_leader_epoch(partition, wanted.current_leader_epoch)
        partition.check_leader()
        epoch, end_offset = partition.end_offset_for_epoch(wanted.leader_epoch)
    except BrokerError as error:
        return EpochEndOffset(error_code=error.code, partition=wanted.partition)
    return EpochEndOffset(partition=wanted.partition, leader_epoch=epoch, end_offset=end_offset)
