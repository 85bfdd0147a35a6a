"""CreateTopics, CreatePartitions and DeleteTopics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Sequence
from uuid import UUID

import trio

from ....protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType
from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.internal_topics import CLUSTER_METADATA
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
from ...metadata.new_topics import MOST_RECORDS_OF_A_REQUEST, TOO_LARGE_A_BATCH, TOO_MANY_PARTITIONS
from ...metadata.replica_placement import DEFAULT
from ...metadata.state import TopicState
from ..contract import RequestContext
from ..rights import AUTHORIZATION_ERROR, EVERYTHING
from ..turns import in_turns

FIRST_VERSION_OF_DELETION_BY_ID = 6
FIRST_VERSION_THAT_KNOWS_DISABLED = 3
NOT_TOLD = -1
DUPLICATE = "Duplicate topic name."


async def handle_create_topics(request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    """Create topics independently of each other, unless the request as a whole is too large."""
    excess = _why_too_many(request.topics, context.services.config.num_partitions)
    if excess is not None:
        refused = ErrorCode.POLICY_VIOLATION
        return CreateTopicsResponse(
            topics=[
                CreatableTopicResult(name=topic.name, error_code=refused, error_message=excess)
                for topic in request.topics
            ]
        )
    twice = _named_twice(topic.name for topic in request.topics)
    names = {topic.name for topic in request.topics if topic.name not in twice and topic.name != CLUSTER_METADATA}
    creatable = creatable_topics(names, context)
    results = [
        CreatableTopicResult(name=name, error_code=ErrorCode.INVALID_REQUEST, error_message=DUPLICATE) for name in twice
    ]
    results += [
        CreatableTopicResult(
            name=name, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, error_message="Authorization failed."
        )
        for name in names
        if name not in creatable
    ]
    described = context.authorized(AclOperation.DESCRIBE_CONFIGS, AclResourceType.TOPIC, names, is_filter=True)
    settled = {result.name for result in results}
    wanted = [topic for topic in request.topics if topic.name not in settled]
    async for topic in in_turns(wanted):
        result = _create(topic, context, validate_only=request.validate_only)
        if result.error_code == ErrorCode.NONE and topic.name not in described:
            _hide_configs(result)
        results.append(result)
    await _wait_for_logs([topic.name for topic in wanted], request.timeout_ms, context)
    return CreateTopicsResponse(topics=results)


def creatable_topics(names: Iterable[str], context: RequestContext) -> Container[str]:
    """Return the topics that the client may create: any, with that right to the cluster."""
    if context.may(AclOperation.CREATE, AclResourceType.CLUSTER, CLUSTER_NAME, is_filter=True):
        return EVERYTHING
    return context.authorized(AclOperation.CREATE, AclResourceType.TOPIC, names)


def _hide_configs(result: CreatableTopicResult) -> None:
    """Leave out what only a client that may describe the topic's configuration gets (KIP-525)."""
    result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    result.num_partitions = result.replication_factor = NOT_TOLD
    result.configs = []


async def _wait_for_logs(topics: Sequence[str], timeout_ms: int, context: RequestContext) -> None:
    """Wait until this broker has the logs of new partitions, at most for the client's timeout."""
    with trio.move_on_after(max(timeout_ms, 0) / 1000):
        await context.services.replicas.wait_for_logs(topics)


def _why_too_many(topics: Sequence[CreatableTopic], default_partitions: int) -> str | None:
    """Return Kafka's error message if a request creates more records than one operation may.

    Source: Kafka `ReplicationControlManager.validateTotalNumberOfPartitions`, and `QuorumController` with
    `MAX_RECORDS_PER_USER_OP`: each topic, each of its partitions and each of its configs is one record.
    """
    partitions = sum(
        len(topic.assignments)
        or (default_partitions if topic.num_partitions == DEFAULT else max(topic.num_partitions, 0))
        for topic in topics
    )
    if partitions > MOST_RECORDS_OF_A_REQUEST:
        return TOO_MANY_PARTITIONS
    records = partitions + sum(1 + len(topic.configs) for topic in topics)
    return TOO_LARGE_A_BATCH if records > MOST_RECORDS_OF_A_REQUEST else None


def _create(wanted: CreatableTopic, context: RequestContext, *, validate_only: bool) -> CreatableTopicResult:
    try:
        if context.services.quotas.is_active:
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
    return context.services.metadata.create_topic(
        wanted.name,
        partitions=wanted.num_partitions,
        replication_factor=wanted.replication_factor,
        assignments=[(assigned.partition_index, assigned.broker_ids) for assigned in wanted.assignments],
        configs={config.name: config.value for config in wanted.configs},
        validate_only=validate_only,
    )


def _record_mutations(partition_count: int, context: RequestContext) -> None:
    """Count mutations against ``controller_mutation_rate`` (KIP-599).

    Raises BrokerError THROTTLING_QUOTA_EXCEEDED.
    """
    strict_since = context.api.strict_quota_since
    is_strict = strict_since is not None and context.api_version >= strict_since
    context.services.quotas.record_mutations(context, partition_count, is_strict=is_strict)


def _described_configs(topic: TopicState, context: RequestContext) -> list[CreatableTopicConfigs]:
    return [
        CreatableTopicConfigs(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=entry.sensitive,
        )
        for entry in describe_topic(context.services.config, topic.configs)
    ]


async def handle_create_partitions(
    request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    """Add partitions to topics, independently for each topic."""
    twice = _named_twice(topic.name for topic in request.topics)
    results = [
        CreatePartitionsTopicResult(name=name, error_code=ErrorCode.INVALID_REQUEST, error_message=DUPLICATE)
        for name in twice
    ]
    wanted = [topic for topic in request.topics if topic.name not in twice]
    alterable = context.authorized(AclOperation.ALTER, AclResourceType.TOPIC, [topic.name for topic in wanted])
    results += [
        CreatePartitionsTopicResult(
            name=topic.name, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, error_message=None
        )
        for topic in wanted
        if topic.name not in alterable
    ]
    wanted = [topic for topic in wanted if topic.name in alterable]
    room = MOST_RECORDS_OF_A_REQUEST
    async for topic in in_turns(wanted):
        result, added = _add_partitions(topic, context, room, validate_only=request.validate_only)
        results.append(result)
        room -= added
    await _wait_for_logs([topic.name for topic in wanted], request.timeout_ms, context)
    return CreatePartitionsResponse(results=results)


def _add_partitions(
    wanted: CreatePartitionsTopic, context: RequestContext, room: int, *, validate_only: bool
) -> tuple[CreatePartitionsTopicResult, int]:
    """Add at most ``room`` partitions; return the result and the number of partitions added.

    Kafka 3.9 refuses more records in one request than `QuorumController.MAX_RECORDS_PER_USER_OP`, here with
    UNKNOWN_SERVER_ERROR (-1); this broker answers as it does for CreateTopics.
    """
    assignments = None if wanted.assignments is None else [assigned.broker_ids for assigned in wanted.assignments]
    added = 0
    try:
        known = context.services.metadata.topics.get(wanted.name)
        added = max(0, wanted.count - len(known.partitions)) if known is not None else 0
        if added > room:
            raise BrokerError(ErrorCode.POLICY_VIOLATION, TOO_LARGE_A_BATCH)
        if context.services.quotas.is_active and known is not None:
            _record_mutations(added, context)
        context.services.metadata.create_partitions(wanted.name, wanted.count, assignments, validate_only=validate_only)
    except BrokerError as error:
        return CreatePartitionsTopicResult(name=wanted.name, error_code=error.code, error_message=error.message), 0
    return CreatePartitionsTopicResult(name=wanted.name), added


async def handle_delete_topics(request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    """Delete topics by name or, from version 6 on, by id, independently of each other."""
    wanted = request.topics
    if context.api_version < FIRST_VERSION_OF_DELETION_BY_ID:
        wanted = [DeleteTopicState(name=name) for name in request.topic_names]
    names = Counter(topic.name for topic in wanted)
    ids = Counter(topic.topic_id for topic in wanted)
    results: dict[object, DeletableTopicResult] = {}
    to_delete: dict[str, DeleteTopicState] = {}
    may_delete_all = context.may(AclOperation.DELETE, AclResourceType.CLUSTER, CLUSTER_NAME, is_filter=True)
    async for topic in in_turns(wanted):
        try:
            _validate_deletion(topic, names, ids)
            name = _name_to_delete(topic, context, is_authorized=may_delete_all)
            if name in to_delete:
                del to_delete[name]
                topic = DeleteTopicState(name=name, topic_id=context.services.metadata.topic(name).topic_id)
                raise _invalid("The provided topic name maps to an ID that was already supplied.")
            to_delete[name] = topic
        except BrokerError as error:
            results[topic.name, topic.topic_id] = _not_deleted(topic, error)
    responses = list(results.values())
    async for name, topic in in_turns(to_delete.items()):
        responses.append(_delete(name, topic.topic_id, context))
    return DeleteTopicsResponse(responses=responses)


def _validate_deletion(topic: DeleteTopicState, names: Counter[str | None], ids: Counter[UUID]) -> None:
    """Check that an entry identifies exactly one topic. Raises BrokerError INVALID_REQUEST."""
    if topic.name is None and topic.topic_id == NO_UUID:
        raise _invalid("Neither topic name nor id were specified.")
    if topic.name is not None and topic.topic_id != NO_UUID:
        raise _invalid("You may not specify both topic name and topic id.")
    if topic.name is not None and names[topic.name] > 1:
        raise _invalid(DUPLICATE)
    if topic.name is None and ids[topic.topic_id] > 1:
        raise _invalid("Duplicate topic id.")


def _name_to_delete(topic: DeleteTopicState, context: RequestContext, *, is_authorized: bool) -> str:
    """Return the name of a topic that the client may delete.

    Raises BrokerError: clients that may not describe the topic must not learn whether its name exists.
    """
    metadata = context.services.metadata
    found = metadata.topics.get(topic.name) if topic.name is not None else metadata.topic_by_id(topic.topic_id)
    if found is None and topic.name is None:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    name = found.name if found is not None else topic.name or ""
    may_describe = is_authorized or context.may(AclOperation.DESCRIBE, AclResourceType.TOPIC, name)
    may_delete = is_authorized or context.may(AclOperation.DELETE, AclResourceType.TOPIC, name)
    is_hidden = topic.name is not None and not may_describe
    if topic.name is None and may_describe and not may_delete:
        # The answer may tell the name that belongs to the id.
        topic.name = name
    if is_hidden or (found is not None and not may_delete):
        raise BrokerError(*AUTHORIZATION_ERROR[AclResourceType.TOPIC])
    if found is None:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    return name


def _delete(name: str, topic_id: UUID, context: RequestContext) -> DeletableTopicResult:
    """Delete a topic if its id is still the requested one."""
    try:
        topic = context.services.metadata.topic(name)
        if topic_id not in (NO_UUID, topic.topic_id):
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
        if context.services.quotas.is_active:
            _record_mutations(len(topic.partitions), context)
        context.services.metadata.delete_topic(name)
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
