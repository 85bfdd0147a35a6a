"""Metadata: the brokers, and the leaders of partitions; with automatic creation of missing topics."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, TypeAlias, cast
from uuid import UUID

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
from ...metadata.state import PartitionState, TopicState
from ...metadata.topic_names import why_invalid
from ...server.outcome import Outcome, then
from ..advertised import visible_brokers
from ..authorized_operations import NOT_ASKED, cluster_operations
from ..contract import RequestContext
from ..encoded_structs import View
from ..turns import MOST_AT_ONCE, each_in_turns, in_turns
from .partition_description import describe_partition
from .topics import creatable_topics

FIRST_VERSION_THAT_FORBIDS_CREATION = 4
FIRST_VERSION_BY_ID = 12

Described: TypeAlias = MetadataResponseTopic | Coroutine[Any, Any, MetadataResponseTopic]
"""A topic in the answer, or a coroutine that describes its many partitions in turns."""


def handle_metadata(request: MetadataRequest, context: RequestContext) -> Outcome[MetadataResponse]:
    """Describe the brokers and the requested topics, and create missing topics if both client and broker allow it."""
    refusal = _why_refused(request.topics or [], context.api_version)
    if refusal is not None:
        return _refused(request.topics or [], refusal)
    metadata = context.services.metadata
    visible = visible_brokers(context)
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack)
            for broker in visible
        ],
        cluster_id=metadata.cluster_id,
        controller_id=metadata.controller_id_for_clients,
        cluster_authorized_operations=cluster_operations(
            context, is_asked=request.include_cluster_authorized_operations
        ),
    )

    def with_topics(topics: list[MetadataResponseTopic]) -> MetadataResponse:
        response.topics = topics
        return response

    return then(_topics(request, context, frozenset(broker.node_id for broker in visible)), with_topics)


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


def _topics(
    request: MetadataRequest, context: RequestContext, alive: frozenset[int]
) -> Outcome[list[MetadataResponseTopic]]:
    describe = _Describing(context, alive, has_operations=request.include_topic_authorized_operations)
    known = context.services.metadata.topics
    if request.topics is None or (context.api_version == 0 and not request.topics):
        topics = list(known.values())
        if context.may_do_everything:
            return each_in_turns(describe, topics, _entry_count(topics))
        return then(each_in_turns(describe.if_visible, topics, _entry_count(topics)), _without_none)
    by_id = dict.fromkeys(topic.topic_id for topic in request.topics if topic.topic_id != NO_UUID)
    if by_id:
        return _topics_by_id(by_id, describe, context)
    may_create = context.services.config.auto_create_topics_enable and (
        context.api_version < FIRST_VERSION_THAT_FORBIDS_CREATION or request.allow_auto_topic_creation
    )
    wanted = dict.fromkeys(topic.name or "" for topic in request.topics)
    visible = context.authorized(AclOperation.DESCRIBE, AclResourceType.TOPIC, wanted)
    missing = [name for name in wanted if name in visible and name not in known]
    creatable = creatable_topics(missing, context) if may_create and missing else ()

    def described(name: str) -> Described:
        if name not in visible:
            return MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)
        topic = known.get(name)
        if topic is not None:
            return describe(topic)
        return describe.missing(name, may_create=may_create, is_creatable=name in creatable)

    return each_in_turns(described, wanted, _entry_count([known.get(name) for name in wanted]))


def _topics_by_id(
    wanted: Iterable[UUID], describe: _Describing, context: RequestContext
) -> Outcome[list[MetadataResponseTopic]]:
    found = [(topic_id, context.services.metadata.topic_by_id(topic_id)) for topic_id in wanted]
    names = (topic.name for _, topic in found if topic is not None)
    visible = context.authorized(AclOperation.DESCRIBE, AclResourceType.TOPIC, names)

    def described(wanted: tuple[UUID, TopicState | None]) -> Described:
        topic_id, topic = wanted
        if topic is None:
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
        if topic.name not in visible:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return MetadataResponseTopic(error_code=code, name=None, topic_id=topic_id)
        return describe(topic)

    return each_in_turns(described, found, _entry_count([topic for _, topic in found]))


def _entry_count(topics: Sequence[TopicState | None]) -> int:
    """Return the number of entries in an answer: partitions, and topics without any."""
    if len(topics) > MOST_AT_ONCE:
        return len(topics)
    return sum(1 if topic is None else len(topic.partitions) for topic in topics)


def _without_none(topics: list[MetadataResponseTopic | None]) -> list[MetadataResponseTopic]:
    return [topic for topic in topics if topic is not None]


class _Describing:
    """A description of topics in one answer."""

    def __init__(self, context: RequestContext, alive: frozenset[int], *, has_operations: bool) -> None:
        self._context = context
        self._alive = alive
        self._has_operations = has_operations
        self._view: View | None = None
        """The encoded topics of earlier answers; None if the answer differs from client to client or from time to
        time."""
        if context.encoded is not None and not has_operations and not context.services.partitions.offline_count:
            self._view = context.encoded.view(MetadataResponse, context.api_version, alive)

    def __call__(self, topic: TopicState) -> Described:
        """Return the description of a topic, maybe an encoded one; for many partitions as a coroutine."""
        view = self._view
        if view is not None:
            found = view.entries.get(topic.name)
            if found is not None and found.revision == topic.revision:
                return cast(MetadataResponseTopic, found.encoded)
        if len(topic.partitions) > MOST_AT_ONCE:
            return self._described_in_turns(topic)
        partitions = [self._partition(topic, partition) for partition in topic.partitions]
        has_error = any(partition.error_code for partition in partitions)
        return self._with_partitions(topic, partitions, topic.revision, has_error=has_error)

    def _with_partitions(
        self, topic: TopicState, partitions: list[MetadataResponsePartition], revision: int, *, has_error: bool
    ) -> MetadataResponseTopic:
        described = MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.is_internal,
            partitions=partitions,
            topic_authorized_operations=self._operations(topic.name),
        )
        view = self._view
        if view is None or has_error or self._context.services.partitions.offline_count > 0:
            return described
        encoded = view.encode(described, 1 + len(partitions))
        if revision == topic.revision:
            view.keep(topic.name, revision, encoded)
        return cast(MetadataResponseTopic, encoded)

    async def _described_in_turns(self, topic: TopicState) -> MetadataResponseTopic:
        """Describe a topic of many partitions, which are encoded one by one, so that no step takes long."""
        revision, has_error = topic.revision, False
        partitions = []
        async for partition in in_turns(list(topic.partitions)):
            described = self._partition(topic, partition)
            if described.error_code:
                has_error = True
            elif self._view is not None:
                described = cast(MetadataResponsePartition, self._view.encode(described, 1))
            partitions.append(described)
        return self._with_partitions(topic, partitions, revision, has_error=has_error)

    def if_visible(self, topic: TopicState) -> Described | None:
        """Return the description of a topic, None if the client may not describe the topic."""
        may = self._context.may(AclOperation.DESCRIBE, AclResourceType.TOPIC, topic.name, is_filter=True)
        return self(topic) if may else None

    def _partition(self, topic: TopicState, partition: PartitionState) -> MetadataResponsePartition:
        return describe_partition(MetadataResponsePartition, self._context, topic.name, partition, self._alive)

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
