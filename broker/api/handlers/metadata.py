"""Metadata: the brokers, and the leaders of partitions; with automatic creation of missing topics."""

from __future__ import annotations

from collections.abc import Iterable

from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.internal_topics import is_internal
from ....protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ....protocol.schema import NO_UUID
from ...metadata.state import NO_LEADER, PartitionState, TopicState
from ...metadata.topic_names import why_invalid
from ..advertised import visible_brokers
from ..authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from ..contract import RequestContext
from ..turns import in_turns
from .alive_replicas import alive_for

FIRST_VERSION_THAT_FORBIDS_CREATION = 4
FIRST_VERSION_BY_ID = 12


async def handle_metadata(request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    """Describe the brokers and the requested topics, and create missing topics if both client and broker allow it."""
    refusal = _why_refused(request.topics or [], context.api_version)
    if refusal is not None:
        return _refused(request.topics or [], refusal)
    metadata = context.services.metadata
    visible = visible_brokers(context)
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack)
            for broker in visible
        ],
        cluster_id=metadata.cluster_id,
        controller_id=metadata.controller_id_for_clients,
        topics=await _topics(request, context, frozenset(broker.node_id for broker in visible)),
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    )


def _why_refused(topics: Iterable[MetadataRequestTopic], version: int) -> ErrorCode | None:
    """Return the error of the whole request: in versions 10 and 11 topic ids are in the schema, but not supported."""
    for topic in topics:
        if version < FIRST_VERSION_BY_ID and (topic.name is None or topic.topic_id != NO_UUID):
            return ErrorCode.INVALID_REQUEST
        if topic.name is None and topic.topic_id == NO_UUID:
            return ErrorCode.UNKNOWN_SERVER_ERROR
    return None


def _refused(topics: Iterable[MetadataRequestTopic], code: ErrorCode) -> MetadataResponse:
    return MetadataResponse(
        topics=[
            MetadataResponseTopic(error_code=code, name=topic.name or "", topic_id=topic.topic_id) for topic in topics
        ]
    )


async def _topics(
    request: MetadataRequest, context: RequestContext, alive: frozenset[int]
) -> list[MetadataResponseTopic]:
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    known = context.services.metadata.topics
    if request.topics is None or (context.api_version == 0 and not request.topics):
        return [_described(topic, operations, alive, context) async for topic in in_turns(list(known.values()))]
    by_id = dict.fromkeys(topic.topic_id for topic in request.topics if topic.topic_id != NO_UUID)
    if by_id:
        found = [(topic_id, context.services.metadata.topic_by_id(topic_id)) for topic_id in by_id]
        return [
            _described(topic, operations, alive, context)
            if topic
            else MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
            async for topic_id, topic in in_turns(found)
        ]
    may_create = context.services.config.auto_create_topics_enable and (
        context.api_version < FIRST_VERSION_THAT_FORBIDS_CREATION or request.allow_auto_topic_creation
    )
    names = dict.fromkeys(topic.name or "" for topic in request.topics)
    return [
        _described(known[name], operations, alive, context)
        if name in known
        else _missing(name, context, may_create=may_create)
        async for name in in_turns(names)
    ]


def _missing(name: str, context: RequestContext, *, may_create: bool) -> MetadataResponseTopic:
    """Return the answer for a missing topic. Kafka creates the topic meanwhile; the client finds it when it retries."""
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if why_invalid(name) is not None:
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
    elif may_create:
        try:
            context.services.metadata.ensure_topic(name)
        except BrokerError as error:
            code = error.code
    return MetadataResponseTopic(error_code=code, name=name, is_internal=is_internal(name))


def _described(
    topic: TopicState, operations: int, alive: frozenset[int], context: RequestContext
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            _described_partition(partition, alive_for(context, alive, topic.name, partition.index))
            for partition in topic.partitions
        ],
        topic_authorized_operations=operations,
    )


def _described_partition(partition: PartitionState, alive: frozenset[int]) -> MetadataResponsePartition:
    has_leader = partition.leader in alive
    return MetadataResponsePartition(
        error_code=ErrorCode.NONE if has_leader else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=partition.index,
        leader_id=partition.leader if has_leader else NO_LEADER,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        offline_replicas=[replica for replica in partition.replicas if replica not in alive],
    )
