"""Placement and leadership of replicas: ElectLeaders and reassignments."""

from __future__ import annotations

from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ....protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from ....protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from ...controller.elections import Election, electing
from ...controller.reassignment import cancelling, is_under_way, reassigning
from ...metadata.state import PartitionState, TopicState
from ..contract import RequestContext
from ..turns import in_turns

ELECTIONS = {0: Election.PREFERRED, 1: Election.UNCLEAN}
"""Election types by their number (KIP-460); version 0 supports only the first."""


async def handle_elect_leaders(request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
    """Elect leaders of the requested partitions, or of all, where the leader would change."""
    kind = ELECTIONS.get(request.election_type if context.api_version >= 1 else 0)
    if kind is None:
        message = f"Unknown election type {request.election_type}"
        refused = [
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[_elected(index, ErrorCode.INVALID_REQUEST, message) for index in topic.partitions],
            )
            for topic in request.topic_partitions or []
        ]
        return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST, replica_election_results=refused)
    if request.topic_partitions is None:
        # Of all partitions, Kafka lists only those that an election would change.
        topics = context.services.metadata.topics.values()
        results = [
            (topic.name, [_election(topic.name, index, kind, context) async for index in in_turns(indexes)])
            async for topic, indexes in in_turns([(topic, range(len(topic.partitions))) for topic in topics])
        ]
        return ElectLeadersResponse(
            replica_election_results=[
                ReplicaElectionResult(topic=name, partition_result=[r for r in found if _was_needed(r)])
                for name, found in results
            ]
        )
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    _election(topic.topic, index, kind, context) async for index in in_turns(topic.partitions)
                ],
            )
            async for topic in in_turns(request.topic_partitions)
        ]
    )


def _was_needed(result: PartitionResult) -> bool:
    return result.error_code != ErrorCode.ELECTION_NOT_NEEDED


def _election(name: str, index: int, kind: Election, context: RequestContext) -> PartitionResult:
    metadata = context.services.metadata
    topic = metadata.topics.get(name)
    if topic is None:
        return _elected(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    if not 0 <= index < len(topic.partitions):
        return _elected(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    try:
        partition = topic.partitions[index]
        metadata.commit([electing(topic.topic_id, partition, metadata.may_lead(partition), kind)])
    except BrokerError as error:
        return _elected(index, error.code, error.message)
    return _elected(index, ErrorCode.NONE, None)


def _elected(index: int, code: ErrorCode, message: str | None) -> PartitionResult:
    return PartitionResult(partition_id=index, error_code=code, error_message=message)


async def handle_alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    """Start or cancel reassignments, independently for each partition (KIP-455)."""
    return AlterPartitionReassignmentsResponse(
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    _reassignment(topic.name, partition, context) async for partition in in_turns(topic.partitions)
                ],
            )
            async for topic in in_turns(request.topics)
        ],
    )


def _reassignment(name: str, wanted: ReassignablePartition, context: RequestContext) -> ReassignablePartitionResponse:
    answer = ReassignablePartitionResponse(partition_index=wanted.partition_index, error_message=None)
    metadata = context.services.metadata
    try:
        topic, partition = _partition(name, wanted.partition_index, context)
        if wanted.replicas is None:
            record = cancelling(topic.topic_id, partition, metadata.may_lead(partition))
        else:
            record = reassigning(
                topic.topic_id,
                partition,
                wanted.replicas,
                registered=metadata.registered_ids,
                may_lead=metadata.may_lead(partition),
            )
        if record is not None:
            metadata.commit([record])
    except BrokerError as error:
        answer.error_code, answer.error_message = error.code, error.message
    return answer


def _partition(name: str, index: int, context: RequestContext) -> tuple[TopicState, PartitionState]:
    topic = context.services.metadata.topics.get(name)
    if topic is None:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    if not 0 <= index < len(topic.partitions):
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}.")
    return topic, topic.partitions[index]


async def handle_list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    """List the ongoing reassignments of the requested partitions, or of all."""
    wanted = None
    if request.topics is not None:
        wanted = {(topic.name, index) for topic in request.topics for index in topic.partition_indexes}
    moving: dict[str, list[OngoingPartitionReassignment]] = {}
    async for topic in in_turns(list(context.services.metadata.topics.values())):
        for partition in topic.partitions:
            if is_under_way(partition) and (wanted is None or (topic.name, partition.index) in wanted):
                described = OngoingPartitionReassignment(
                    partition_index=partition.index,
                    replicas=partition.replicas,
                    adding_replicas=partition.adding,
                    removing_replicas=partition.removing,
                )
                moving.setdefault(topic.name, []).append(described)
    return ListPartitionReassignmentsResponse(
        error_message=None,
        topics=[OngoingTopicReassignment(name=name, partitions=partitions) for name, partitions in moving.items()],
    )
