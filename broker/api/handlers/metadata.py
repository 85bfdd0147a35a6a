"""Metadata: the brokers, and the leaders of partitions; with automatic creation of missing topics."""

from __future__ import annotations

from collections.abc import Iterable

from ....protocol.acls import AclOperation, AclResourceType
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
from ...metadata.state import TopicState
from ...metadata.topic_names import why_invalid
from ..advertised import visible_brokers
from ..authorized_operations import NOT_ASKED, cluster_operations
from ..contract import RequestContext
from ..turns import in_turns
from .partition_description import describe_partition
from .topics import creatable_topics

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
        cluster_authorized_operations=cluster_operations(
            context, is_asked=request.include_cluster_authorized_operations
        ),
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
    describe = _Describing(context, alive, has_operations=request.include_topic_authorized_operations)
    known = context.services.metadata.topics
    if request.topics is None or (context.api_version == 0 and not request.topics):
        return [
            describe(topic)
            async for topic in in_turns(list(known.values()))
            if context.may(AclOperation.DESCRIBE, AclResourceType.TOPIC, topic.name, is_filter=True)
        ]
    by_id = dict.fromkeys(topic.topic_id for topic in request.topics if topic.topic_id != NO_UUID)
    if by_id:
        found = [(topic_id, context.services.metadata.topic_by_id(topic_id)) for topic_id in by_id]
        names = (topic.name for _, topic in found if topic is not None)
        visible = context.authorized(AclOperation.DESCRIBE, AclResourceType.TOPIC, names)
        return [
            describe(topic)
            if topic is not None and topic.name in visible
            else MetadataResponseTopic(
                error_code=ErrorCode.UNKNOWN_TOPIC_ID if topic is None else ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                name=None,
                topic_id=topic_id,
            )
            async for topic_id, topic in in_turns(found)
        ]
    may_create = context.services.config.auto_create_topics_enable and (
        context.api_version < FIRST_VERSION_THAT_FORBIDS_CREATION or request.allow_auto_topic_creation
    )
    wanted = dict.fromkeys(topic.name or "" for topic in request.topics)
    visible = context.authorized(AclOperation.DESCRIBE, AclResourceType.TOPIC, wanted)
    missing = [name for name in wanted if name in visible and name not in known]
    creatable = creatable_topics(missing, context) if may_create and missing else ()
    return [
        MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)
        if name not in visible
        else describe(known[name])
        if name in known
        else describe.missing(name, may_create=may_create, is_creatable=name in creatable)
        async for name in in_turns(wanted)
    ]


class _Describing:
    """A description of topics in one answer."""

    def __init__(self, context: RequestContext, alive: frozenset[int], *, has_operations: bool) -> None:
        self._context = context
        self._alive = alive
        self._has_operations = has_operations

    def __call__(self, topic: TopicState) -> MetadataResponseTopic:
        """Return the description of a topic."""
        return MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.is_internal,
            partitions=[
                describe_partition(MetadataResponsePartition, self._context, topic.name, partition, self._alive)
                for partition in topic.partitions
            ],
            topic_authorized_operations=self._operations(topic.name),
        )

    def missing(self, name: str, *, may_create: bool, is_creatable: bool) -> MetadataResponseTopic:
        """Return the answer for a missing topic.

        Kafka creates the topic meanwhile; the client finds it when it retries.
        """
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        operations = self._operations(name)
        if may_create and not is_creatable:
            code, operations = ErrorCode.TOPIC_AUTHORIZATION_FAILED, NOT_ASKED
        elif why_invalid(name) is not None:
            code = ErrorCode.INVALID_TOPIC_EXCEPTION
        elif may_create:
            try:
                self._context.services.metadata.ensure_topic(name)
            except BrokerError as error:
                code = error.code
        return MetadataResponseTopic(
            error_code=code, name=name, is_internal=is_internal(name), topic_authorized_operations=operations
        )

    def _operations(self, name: str) -> int:
        return self._context.authorized_operations(AclResourceType.TOPIC, name) if self._has_operations else NOT_ASKED
