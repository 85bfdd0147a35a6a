"""Committed offsets of consumer groups: OffsetCommit and OffsetFetch, with a new FindCoordinator where the coordinator
moves.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import groupby
from typing import NamedTuple, TypeVar

from ...protocol.apis import ApiKey
from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ...protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from ...protocol.topic_partition import AnyTopicPartition
from ..config import ClientConfig
from ..errors import COORDINATOR_MOVED_CODES
from .cluster import Cluster, CoordinatorType
from .retry import retry

T = TypeVar("T")

FIRST_VERSION_WITH_REQUIRE_STABLE = 7


class Membership(NamedTuple):
    """The member that commits; the defaults are for a consumer that is not a member of the group."""

    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


NO_MEMBERSHIP = Membership()


class GroupMetadata(NamedTuple):
    """The group and member of a consumer, with which a transaction commits offsets.

    Offsets of a member that was removed from its group are refused.

    KIP-447; Kafka's ConsumerGroupMetadata.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class CommittedOffset(NamedTuple):
    """An offset that a group has committed for a partition: the next offset to read, and its metadata text."""

    offset: int
    metadata: str = ""


async def ask_coordinator(
    cluster: Cluster,
    group_id: str,
    attempt: Callable[[int], Awaitable[T]],
    config: ClientConfig,
    *,
    timeout_ms: int,
    what: str,
) -> T:
    """Call `attempt` with the coordinator's node id until it succeeds; raises the errors of `retry`."""

    async def find_and_attempt() -> T:
        return await attempt(await cluster.coordinator(CoordinatorType.GROUP, group_id))

    def before_retry(failure: Exception) -> None:
        if not isinstance(failure, BrokerError) or failure.code in COORDINATOR_MOVED_CODES:
            cluster.forget_coordinator(CoordinatorType.GROUP, group_id)

    return await retry(find_and_attempt, config, timeout_ms=timeout_ms, what=what, before_retry=before_retry)


async def commit_offsets(
    cluster: Cluster,
    group_id: str,
    offsets: Mapping[AnyTopicPartition, int | CommittedOffset],
    config: ClientConfig,
    *,
    timeout_ms: int,
    membership: Membership = NO_MEMBERSHIP,
) -> None:
    """Commit the next offsets to read, with their metadata texts if any.

    Raises BrokerError (of the first partition refused) or DeadlineExceededError.
    """
    request = OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=membership.generation_id,
        member_id=membership.member_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[_to_commit(place[1], offsets[place]) for place in places],
            )
            for topic, places in groupby(sorted(offsets), key=lambda place: place[0])
        ],
    )

    async def attempt(node: int) -> None:
        connection = await cluster.connection(node)
        version = connection.versions.version(ApiKey.OFFSET_COMMIT)
        request.group_instance_id = membership.group_instance_id if version >= 7 else None
        answer = await connection.request(request, OffsetCommitResponse, version=version)
        for topic in answer.topics:
            for part in topic.partitions:
                if part.error_code:
                    raise BrokerError(ErrorCode(part.error_code), f"commit of {topic.name}-{part.partition_index}")

    await ask_coordinator(cluster, group_id, attempt, config, timeout_ms=timeout_ms, what="OffsetCommit")


async def fetch_committed(
    cluster: Cluster,
    group_id: str,
    partitions: Iterable[AnyTopicPartition] | None,
    config: ClientConfig,
    *,
    timeout_ms: int,
) -> dict[AnyTopicPartition, CommittedOffset]:
    """Return the committed offsets, where there are any, of these partitions (None: of all partitions).

    Raises BrokerError or DeadlineExceededError. All partitions in one request need Kafka 0.10.2.
    """
    topics = None
    if partitions is not None:
        topics = [
            OffsetFetchRequestTopic(name=topic, partition_indexes=[place[1] for place in places])
            for topic, places in groupby(sorted(partitions), key=lambda place: place[0])
        ]

    async def attempt(node: int) -> dict[AnyTopicPartition, CommittedOffset]:
        connection = await cluster.connection(node)
        version = connection.versions.version(ApiKey.OFFSET_FETCH)
        request = OffsetFetchRequest(group_id=group_id, topics=topics)
        # Otherwise the coordinator would return offsets that an open transaction may replace (KIP-447).
        request.require_stable = version >= FIRST_VERSION_WITH_REQUIRE_STABLE
        answer = await connection.request(request, OffsetFetchResponse, version=version)
        if answer.error_code:
            raise BrokerError(ErrorCode(answer.error_code), f"OffsetFetch of {group_id}")
        found = {}
        for topic in answer.topics:
            for part in topic.partitions:
                if part.error_code and part.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise BrokerError(ErrorCode(part.error_code), f"{topic.name}-{part.partition_index}")
                if part.committed_offset >= 0:
                    found[topic.name, part.partition_index] = CommittedOffset(
                        part.committed_offset, part.metadata or ""
                    )
        return found

    return await ask_coordinator(cluster, group_id, attempt, config, timeout_ms=timeout_ms, what="OffsetFetch")


def _to_commit(partition: int, offset: int | CommittedOffset) -> OffsetCommitRequestPartition:
    committed = offset if isinstance(offset, CommittedOffset) else CommittedOffset(offset)
    return OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=committed.offset, committed_metadata=committed.metadata
    )
