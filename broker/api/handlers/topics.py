"""CreateTopics, CreatePartitions and DeleteTopics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from uuid import UUID

from ....protocol.apis import AnyApiKey, ApiKey
from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from ....protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ....protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ....protocol.schema import NO_UUID
from ...metadata.config_entries import describe_topic
from ...metadata.state import TopicState
from ...server.requests import RequestContext

FIRST_VERSION_OF_DELETION_BY_ID = 6
FIRST_VERSION_THAT_KNOWS_DISABLED = 3
FIRST_VERSION_WITH_STRICT_QUOTA: Mapping[AnyApiKey, int] = {
    ApiKey.CREATE_TOPICS: 6,
    ApiKey.CREATE_PARTITIONS: 3,
    ApiKey.DELETE_TOPICS: 5,
}
"""From here on clients know THROTTLING_QUOTA_EXCEEDED; older ones are only delayed."""
DUPLICATE = "Duplicate topic name."


async def handle_create_topics(request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    """Create topics, each for itself: one that cannot be created hinders none."""
    twice = _named_twice(topic.name for topic in request.topics)
    wanted = [topic for topic in request.topics if topic.name not in twice]
    results = [
        CreatableTopicResult(name=name, error_code=ErrorCode.INVALID_REQUEST, error_message=DUPLICATE) for name in twice
    ]
    results += [_create(topic, context, validate_only=request.validate_only) for topic in wanted]
    return CreateTopicsResponse(topics=results)


def _create(wanted: CreatableTopic, context: RequestContext, *, validate_only: bool) -> CreatableTopicResult:
    try:
        if context.broker.quotas.is_active:
            planned = _create_as_told(wanted, context, validate_only=True)
            _record_mutations(len(planned.partitions), context)
        topic = _create_as_told(wanted, context, validate_only=validate_only)
    except BrokerError as error:
        return CreatableTopicResult(name=wanted.name, error_code=error.code, error_message=error.message)
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        error_message=None,
        num_partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
        configs=_described_configs(topic, context),
    )


def _create_as_told(wanted: CreatableTopic, context: RequestContext, *, validate_only: bool) -> TopicState:
    return context.broker.metadata.create_topic(
        wanted.name,
        partitions=wanted.num_partitions,
        replication_factor=wanted.replication_factor,
        assignments=[(assigned.partition_index, assigned.broker_ids) for assigned in wanted.assignments],
        configs={config.name: config.value for config in wanted.configs},
        validate_only=validate_only,
    )


def _record_mutations(partition_count: int, context: RequestContext) -> None:
    """Count against ``controller_mutation_rate`` (KIP-599). Raises BrokerError THROTTLING_QUOTA_EXCEEDED."""
    is_strict = context.api_version >= FIRST_VERSION_WITH_STRICT_QUOTA[context.api_key]
    context.broker.quotas.record_mutations(context, partition_count, is_strict=is_strict)


def _described_configs(topic: TopicState, context: RequestContext) -> list[CreatableTopicConfigs]:
    return [
        CreatableTopicConfigs(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=entry.sensitive,
        )
        for entry in describe_topic(context.broker.config, topic.configs)
    ]


async def handle_create_partitions(
    request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    """Add partitions to topics, each for itself."""
    twice = _named_twice(topic.name for topic in request.topics)
    results = [
        CreatePartitionsTopicResult(name=name, error_code=ErrorCode.INVALID_REQUEST, error_message=DUPLICATE)
        for name in twice
    ]
    wanted = [topic for topic in request.topics if topic.name not in twice]
    results += [_add_partitions(topic, context, validate_only=request.validate_only) for topic in wanted]
    return CreatePartitionsResponse(results=results)


def _add_partitions(
    wanted: CreatePartitionsTopic, context: RequestContext, *, validate_only: bool
) -> CreatePartitionsTopicResult:
    assignments = None if wanted.assignments is None else [assigned.broker_ids for assigned in wanted.assignments]
    try:
        if context.broker.quotas.is_active:
            have = len(context.broker.metadata.topic(wanted.name).partitions)
            _record_mutations(max(0, wanted.count - have), context)
        context.broker.metadata.create_partitions(wanted.name, wanted.count, assignments, validate_only=validate_only)
    except BrokerError as error:
        return CreatePartitionsTopicResult(name=wanted.name, error_code=error.code, error_message=error.message)
    return CreatePartitionsTopicResult(name=wanted.name)


async def handle_delete_topics(request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    """Delete topics by name or, from version 6 on, by id; each for itself."""
    wanted = request.topics
    if context.api_version < FIRST_VERSION_OF_DELETION_BY_ID:
        wanted = [DeleteTopicState(name=name) for name in request.topic_names]
    names = Counter(topic.name for topic in wanted)
    ids = Counter(topic.topic_id for topic in wanted)
    results: dict[object, DeletableTopicResult] = {}
    to_delete: dict[str, DeleteTopicState] = {}
    for topic in wanted:
        try:
            _validate_deletion(topic, names, ids)
            name = _name_to_delete(topic, context)
            if name in to_delete:
                del to_delete[name]
                topic = DeleteTopicState(name=name, topic_id=context.broker.metadata.topic(name).topic_id)
                raise _invalid("The provided topic name maps to an ID that was already supplied.")
            to_delete[name] = topic
        except BrokerError as error:
            results[topic.name, topic.topic_id] = _not_deleted(topic, error)
    return DeleteTopicsResponse(responses=[*results.values(), *(_delete(name, context) for name in to_delete)])


def _validate_deletion(topic: DeleteTopicState, names: Counter[str | None], ids: Counter[UUID]) -> None:
    """Raise BrokerError INVALID_REQUEST where it is not clear which one topic is meant."""
    if topic.name is None and topic.topic_id == NO_UUID:
        raise _invalid("Neither topic name nor id were specified.")
    if topic.name is not None and topic.topic_id != NO_UUID:
        raise _invalid("You may not specify both topic name and topic id.")
    if topic.name is not None and names[topic.name] > 1:
        raise _invalid(DUPLICATE)
    if topic.name is None and ids[topic.topic_id] > 1:
        raise _invalid("Duplicate topic id.")


def _name_to_delete(topic: DeleteTopicState, context: RequestContext) -> str:
    metadata = context.broker.metadata
    found = metadata.topics.get(topic.name) if topic.name is not None else metadata.topic_by_id(topic.topic_id)
    if found is None and topic.name is None:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    if found is None:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    return found.name


def _delete(name: str, context: RequestContext) -> DeletableTopicResult:
    topic = context.broker.metadata.topic(name)
    try:
        if context.broker.quotas.is_active:
            _record_mutations(len(topic.partitions), context)
        context.broker.metadata.delete_topic(name)
    except BrokerError as error:
        code = error.code
        if code is ErrorCode.TOPIC_DELETION_DISABLED and context.api_version < FIRST_VERSION_THAT_KNOWS_DISABLED:
            code = ErrorCode.INVALID_REQUEST
        return DeletableTopicResult(name=name, error_code=code, error_message=error.message)
    return DeletableTopicResult(name=name, topic_id=topic.topic_id)


def _not_deleted(topic: DeleteTopicState, error: BrokerError) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=topic.name, topic_id=topic.topic_id, error_code=error.code, error_message=error.message
    )


def _invalid(reason: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, reason)


def _named_twice(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]
