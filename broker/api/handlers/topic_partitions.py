"""DescribeTopicPartitions: topics page by page, for clusters whose Metadata would be too large (KIP-966)."""

from __future__ import annotations

from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.internal_topics import is_internal
from ....protocol.messages.describe_topic_partitions import (
    Cursor,
    CursorResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from ...metadata.state import NO_LEADER, PartitionState, TopicState
from ...metadata.topic_names import why_invalid
from ..advertised import visible_brokers
from ..authorized_operations import TOPIC_OPERATIONS
from ..contract import RequestContext
from .alive_replicas import alive_for


async def handle_describe_topic_partitions(
    request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    """Describe topics in the order of their names, from the cursor on, as far as the limit allows."""
    try:
        names = _names(request, context)
    except BrokerError as error:
        failed = [
            DescribeTopicPartitionsResponseTopic(error_code=error.code, name=topic.name) for topic in request.topics
        ]
        return DescribeTopicPartitionsResponse(topics=failed)
    limit = max(min(request.response_partition_limit, context.services.config.max_request_partition_size_limit), 1)
    response = DescribeTopicPartitionsResponse()
    alive = frozenset(broker.node_id for broker in visible_brokers(context))
    for name in names:
        if limit == 0:
            response.next_cursor = CursorResponse(topic_name=name, partition_index=0)
            break
        topic = context.services.metadata.topics.get(name)
        if topic is None:
            response.topics.append(_missing(name))
            continue
        first = _first_partition(request.cursor, name)
        page = topic.partitions[first : first + limit]
        response.topics.append(_described(topic, page, alive, context))
        if first + len(page) < len(topic.partitions):
            response.next_cursor = CursorResponse(topic_name=name, partition_index=first + len(page))
            break
        limit -= len(page)
    return response


def _names(request: DescribeTopicPartitionsRequest, context: RequestContext) -> list[str]:
    """Return the topics to describe. Raises BrokerError INVALID_REQUEST for a cursor outside of the request."""
    cursor = request.cursor
    asked = {topic.name for topic in request.topics} or context.services.metadata.topics.keys()
    names = sorted(name for name in asked if cursor is None or name >= cursor.topic_name)
    if cursor is not None and request.topics and cursor.topic_name not in names:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            f"DescribeTopicPartitionsRequest topic list should contain the cursor topic: {cursor.topic_name}",
        )
    if cursor is not None and cursor.partition_index < 0:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "DescribeTopicPartitionsRequest cursor partition must be valid")
    return names


def _first_partition(cursor: Cursor | None, name: str) -> int:
    return cursor.partition_index if cursor is not None and cursor.topic_name == name else 0


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.INVALID_TOPIC_EXCEPTION if why_invalid(name) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return DescribeTopicPartitionsResponseTopic(
        error_code=code, name=name, is_internal=is_internal(name), topic_authorized_operations=TOPIC_OPERATIONS
    )


def _described(
    topic: TopicState, page: list[PartitionState], alive: frozenset[int], context: RequestContext
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            _described_partition(partition, alive_for(context, alive, topic.name, partition.index))
            for partition in page
        ],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _described_partition(partition: PartitionState, alive: frozenset[int]) -> DescribeTopicPartitionsResponsePartition:
    has_leader = partition.leader in alive
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.NONE if has_leader else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=partition.index,
        leader_id=partition.leader if has_leader else NO_LEADER,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=[replica for replica in partition.replicas if replica not in alive],
    )
