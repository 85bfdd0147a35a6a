"""OffsetForLeaderEpoch: the end offset of a leader epoch, for clients that detect truncation (KIP-320)."""

from __future__ import annotations

from collections.abc import Container

from ....protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType
from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from ...replicas.fetching.reading import check_exact_leader_epoch
from ..contract import RequestContext
from ..rights import EVERYTHING


def handle_offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    """Return the largest known epoch not above the requested one, and its end offset; both -1 if there is none."""
    allowed = _described(request, context)
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_answer(topic.topic, wanted, allowed, context) for wanted in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _described(request: OffsetForLeaderEpochRequest, context: RequestContext) -> Container[str]:
    """Return the topics that the client may describe; a broker may describe all of them."""
    if context.may(AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER, CLUSTER_NAME, is_filter=True):
        return EVERYTHING
    names = (topic.topic for topic in request.topics)
    return context.authorized(AclOperation.DESCRIBE, AclResourceType.TOPIC, names)


def _answer(
    topic: str, wanted: OffsetForLeaderPartition, allowed: Container[str], context: RequestContext
) -> EpochEndOffset:
    if topic not in allowed:
        return EpochEndOffset(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, partition=wanted.partition)
    try:
        partition = context.services.partitions.get(topic, wanted.partition)
        check_exact_leader_epoch(partition, wanted.current_leader_epoch)
        partition.check_leader()
        epoch, end_offset = partition.end_offset_for_epoch(wanted.leader_epoch)
    except BrokerError as error:
        return EpochEndOffset(error_code=error.code, partition=wanted.partition)
    return EpochEndOffset(partition=wanted.partition, leader_epoch=epoch, end_offset=end_offset)
