"""DescribeTopicPartitions: topics page by page, for clusters whose Metadata would be too large (KIP-966)."""

from __future__ import annotations

from ....protocol.acls import AclOperation, AclResourceType
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
from ...metadata.state import PartitionState, TopicState
from ...metadata.topic_names import why_invalid
from ..advertised import visible_brokers
from ..contract import RequestContext
from .partition_description import describe_partition


def handle_describe_topic_partitions(
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
    unauthorized = []
    for name in names:
        if not context.may(AclOperation.DESCRIBE, AclResourceType.TOPIC, name):
            if request.topics:
                unauthorized.append(_unauthorized(name))
            continue
        if limit == 0:
            response.next_cursor = CursorResponse(topic_name=name, partition_index=0)
            break
        topic = context.services.metadata.topics.get(name)
        if topic is None:
            response.topics.append(_missing(name, context))
            continue
        first = _first_partition(request.cursor, name)
        page = topic.partitions[first : first + limit]
        response.topics.append(_described(topic, page, alive, context))
        if first + len(page) < len(topic.partitions):
            response.next_cursor = CursorResponse(topic_name=name, partition_index=first + len(page))
            break
        limit -= len(page)
    response.topics += unauthorized
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


def _unauthorized(name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)


def _missing(name: str, context: RequestContext) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.INVALID_TOPIC_EXCEPTION if why_invalid(name) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        is_internal=is_internal(name),
        topic_authorized_operations=context.authorized_operations(AclResourceType.TOPIC, name),
    )


def _described(
    topic: TopicState, page: list[PartitionState], alive: frozenset[int], context: RequestContext
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[_described_partition(topic.name, partition, alive, context) for partition in page],
        topic_authorized_operations=context.authorized_operations(AclResourceType.TOPIC, topic.name),
    )


def _described_partition(
    topic: str, partition: PartitionState, alive: frozenset[int], context: RequestContext
) -> DescribeTopicPartitionsResponsePartition:
    described = describe_partition(DescribeTopicPartitionsResponsePartition, context, topic, partition, alive)
    described.eligible_leader_replicas = []
    described.last_known_elr = []
    return described
