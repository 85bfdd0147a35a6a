"""Committed offsets: OffsetCommit, OffsetFetch, OffsetDelete, TxnOffsetCommit.

In Kafka, version 0 of the first two used ZooKeeper; here it uses the same offsets as all other versions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

from ....protocol.acls import AclOperation, AclResourceType
from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.internal_topics import GROUP_METADATA
from ....protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ....protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ....protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ....protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ....protocol.topic_partition import TopicPartition
from ...coordinators.groups.classic_protocol import Committer
from ...coordinators.groups.offset_service import NO_OFFSET, FetchedOffset, OffsetToCommit
from ...coordinators.internal_log.coordinator_log import TransactionalProducer
from ...coordinators.transactions.transaction import ProducerIdentity
from ..contract import RequestContext
from ..transaction_verification import join_transaction, transaction_support

ZOOKEEPER_VERSION = 0
TOP_LEVEL_ERROR_SINCE = 2
"""First OffsetFetch version with a top-level error."""
BATCHED_FETCH_SINCE = 8
MEMBER_EPOCH_SINCE = 9
"""First OffsetCommit version that members of the consumer protocol may use (KIP-848)."""
LOAD_ERROR_UNDERSTOOD_SINCE = 2
"""Producers before this TxnOffsetCommit version fail on COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296)."""


T = TypeVar("T")


class _NamedPartition(Protocol):
    partition_index: int


class _NamedTopic(Protocol):
    name: str

    @property
    def partitions(self) -> Iterable[_NamedPartition]: ...


# --- OffsetCommit and TxnOffsetCommit


def handle_offset_commit(request: OffsetCommitRequest, context: RequestContext) -> OffsetCommitResponse:
    """Commit offsets, as a member of the group or, for a group without members, as any client."""
    committer = Committer(
        request.group_id,
        request.member_id,
        request.generation_id_or_member_epoch,
        request.group_instance_id,
        knows_member_epochs=context.api_version >= MEMBER_EPOCH_SINCE,
    )
    positions = {
        TopicPartition(topic.name, partition.partition_index): OffsetToCommit(
            partition.committed_offset,
            partition.committed_leader_epoch,
            partition.committed_metadata,
            partition.commit_timestamp,
            request.retention_time_ms,
        )
        for topic in request.topics
        for partition in topic.partitions
        if _exists(topic.name, partition.partition_index, context)
    }
    try:
        errors = context.services.groups.commit(committer, positions) if positions else {}
    except BrokerError as refusal:
        errors = dict.fromkeys(positions, refusal.code)
    return OffsetCommitResponse(
        topics=_outcomes(request.topics, errors, OffsetCommitResponseTopic, OffsetCommitResponsePartition)
    )


async def handle_txn_offset_commit(request: TxnOffsetCommitRequest, context: RequestContext) -> TxnOffsetCommitResponse:
    """Commit offsets that take effect when the producer's transaction is committed (KIP-98, KIP-447)."""
    positions = {
        TopicPartition(topic.name, partition.partition_index): OffsetToCommit(
            partition.committed_offset, partition.committed_leader_epoch, partition.committed_metadata
        )
        for topic in request.topics
        for partition in topic.partitions
        if _exists(topic.name, partition.partition_index, context)
    }
    try:
        errors = await _commit_in_transaction(request, positions, context) if positions else {}
    except BrokerError as error:
        errors = dict.fromkeys(positions, error.code)
    return TxnOffsetCommitResponse(
        topics=_outcomes(request.topics, errors, TxnOffsetCommitResponseTopic, TxnOffsetCommitResponsePartition)
    )


async def _commit_in_transaction(
    request: TxnOffsetCommitRequest, positions: Mapping[TopicPartition, OffsetToCommit], context: RequestContext
) -> dict[TopicPartition, ErrorCode]:
    groups = context.services.groups
    try:
        groups.check(request.group_id)
    except BrokerError as refusal:
        is_loading = refusal.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if is_loading and context.api_version < LOAD_ERROR_UNDERSTOOD_SINCE:
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE) from None
        raise
    await _join_transaction(request, context)
    return groups.commit(
        Committer(request.group_id, request.member_id, request.generation_id, request.group_instance_id),
        positions,
        TransactionalProducer(request.producer_id, request.producer_epoch),
    )


async def _join_transaction(request: TxnOffsetCommitRequest, context: RequestContext) -> None:
    """Check that the transaction holds the group's partition of the offsets topic, or add it. Raises BrokerError."""
    services = context.services
    try:
        await join_transaction(
            services,
            services.partitions.get(GROUP_METADATA, services.groups.partition_of(request.group_id)),
            request.transactional_id,
            ProducerIdentity(request.producer_id, request.producer_epoch),
            transaction_support(context),
        )
    except BrokerError as error:
        if error.code is ErrorCode.NOT_ENOUGH_REPLICAS:
            # Producers that commit offsets do not expect this code (Kafka `maybeConvertOffsetCommitError`).
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from error
        raise


def _exists(topic: str, partition: int, context: RequestContext) -> bool:
    return context.services.metadata.has_partition(topic, partition)


def _outcomes(
    topics: Iterable[_NamedTopic],
    errors: Mapping[TopicPartition, ErrorCode],
    topic_of: Callable[..., T],
    partition_of: Callable[..., object],
) -> list[T]:
    """Return an answer's topics with each partition's error; partitions that do not exist were not attempted."""
    return [
        topic_of(
            name=topic.name,
            partitions=[
                partition_of(
                    partition_index=partition.partition_index,
                    error_code=errors.get(
                        TopicPartition(topic.name, partition.partition_index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    ),
                )
                for partition in topic.partitions
            ],
        )
        for topic in topics
    ]


# --- OffsetFetch


def handle_offset_fetch(request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    """Return the committed offsets of a group, or from version 8 on of several groups."""
    if context.api_version >= BATCHED_FETCH_SINCE:
        return OffsetFetchResponse(
            groups=[
                _fetch_group(group, require_stable=request.require_stable, context=context) for group in request.groups
            ]
        )
    wanted = None if request.topics is None else _wanted(request.topics)
    fetched, error = _fetch(request.group_id, wanted, require_stable=request.require_stable, context=context)
    if error and context.api_version < TOP_LEVEL_ERROR_SINCE:
        fetched = dict.fromkeys(wanted or (), FetchedOffset(error=error))
    if context.api_version == ZOOKEEPER_VERSION:
        fetched = {partition: _as_from_zookeeper(offset) for partition, offset in fetched.items()}
    topics = _fetched_topics(fetched, OffsetFetchResponseTopic, OffsetFetchResponsePartition)
    return OffsetFetchResponse(topics=topics, error_code=error)


def _fetch_group(
    group: OffsetFetchRequestGroup, *, require_stable: bool, context: RequestContext
) -> OffsetFetchResponseGroup:
    wanted = None if group.topics is None else _wanted(group.topics)
    fetched, error = _fetch(
        group.group_id,
        wanted,
        require_stable=require_stable,
        context=context,
        member_id=group.member_id,
        member_epoch=group.member_epoch,
    )
    topics = _fetched_topics(fetched, OffsetFetchResponseTopics, OffsetFetchResponsePartitions)
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=topics, error_code=error)


def _fetched_topics(
    fetched: Mapping[TopicPartition, FetchedOffset], topic_of: Callable[..., T], partition_of: Callable[..., object]
) -> list[T]:
    """Return an answer's topics; their class differs before version 8 and from it on."""
    partitions: dict[str, list[object]] = {}
    for (topic, index), offset in fetched.items():
        partitions.setdefault(topic, []).append(
            partition_of(
                partition_index=index,
                committed_offset=offset.offset,
                committed_leader_epoch=offset.leader_epoch,
                metadata=offset.metadata,
                error_code=offset.error,
            )
        )
    return [topic_of(name=topic, partitions=found) for topic, found in partitions.items()]


class _WantedTopic(Protocol):
    name: str
    partition_indexes: list[int]


def _wanted(topics: Iterable[_WantedTopic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in topics for index in topic.partition_indexes]


def _fetch(
    group_id: str,
    wanted: list[TopicPartition] | None,
    *,
    require_stable: bool,
    context: RequestContext,
    member_id: str | None = None,
    member_epoch: int = -1,
) -> tuple[dict[TopicPartition, FetchedOffset], ErrorCode]:
    describe, topic = AclOperation.DESCRIBE, AclResourceType.TOPIC
    denied = []
    try:
        context.authorize(describe, AclResourceType.GROUP, group_id)
        if wanted is not None:
            allowed = context.authorized(describe, topic, dict.fromkeys(partition.topic for partition in wanted))
            denied = [partition for partition in wanted if partition.topic not in allowed]
            wanted = [partition for partition in wanted if partition.topic in allowed]
        fetched = context.services.groups.fetch_offsets(
            group_id, wanted, require_stable=require_stable, member_id=member_id, member_epoch=member_epoch
        )
    except BrokerError as error:
        return {}, error.code
    if wanted is None:
        allowed = context.authorized(describe, topic, dict.fromkeys(partition.topic for partition in fetched))
        fetched = {partition: offset for partition, offset in fetched.items() if partition.topic in allowed}
    fetched.update(dict.fromkeys(denied, FetchedOffset(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)))
    return fetched, ErrorCode.NONE


def _as_from_zookeeper(offset: FetchedOffset) -> FetchedOffset:
    """Return "nothing committed" as the error that 0.8 clients expect (Kafka 0.8 to 2.x, OffsetFetch v0)."""
    if offset.offset == NO_OFFSET and not offset.error:
        return offset._replace(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return offset


# --- OffsetDelete


def handle_offset_delete(request: OffsetDeleteRequest, context: RequestContext) -> OffsetDeleteResponse:
    """Delete committed offsets of topics that no member is subscribed to (KIP-496)."""
    existing = [
        TopicPartition(topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
        if _exists(topic.name, partition.partition_index, context)
    ]
    errors = context.services.groups.delete_offsets(request.group_id, existing)
    return OffsetDeleteResponse(
        topics=_outcomes(request.topics, errors, OffsetDeleteResponseTopic, OffsetDeleteResponsePartition)
    )
