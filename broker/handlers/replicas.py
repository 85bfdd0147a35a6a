"""Where replicas are and who leads: ElectLeaders, reassignments, log directories.

There is one replica of everything so far, so much of this is a polite no; each no is Kafka's.
"""

from __future__ import annotations

import os

from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ...protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from ...protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ...protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from ...protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from ...storage.log_directory import LogDirectory
from ..metadata.internal_topics import CLUSTER_METADATA
from ..metadata.replica_placement import validate_replicas
from ..metadata.state import PartitionState
from ..requests import RequestContext

PREFERRED, UNCLEAN = 0, 1
"""Kinds of elections (KIP-460)."""


async def handle_elect_leaders(request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
    """Elect leaders: a partition with one replica is led by it already."""
    if request.election_type not in (PREFERRED, UNCLEAN) and context.api_version >= 1:
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
        return ElectLeadersResponse(
            replica_election_results=[ReplicaElectionResult(topic=name) for name in context.broker.metadata.topics]
        )
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[_election(topic.topic, index, context) for index in topic.partitions],
            )
            for topic in request.topic_partitions
        ]
    )


def _election(name: str, index: int, context: RequestContext) -> PartitionResult:
    topic = context.broker.metadata.topics.get(name)
    if topic is None:
        return _elected(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    if not 0 <= index < len(topic.partitions):
        return _elected(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    return _elected(index, ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")


def _elected(index: int, code: ErrorCode, message: str) -> PartitionResult:
    return PartitionResult(partition_id=index, error_code=code, error_message=message)


async def handle_alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    """Move replicas: to where they are is done at once, elsewhere there is nobody."""
    return AlterPartitionReassignmentsResponse(
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[_reassignment(topic.name, partition, context) for partition in topic.partitions],
            )
            for topic in request.topics
        ],
    )


def _reassignment(name: str, wanted: ReassignablePartition, context: RequestContext) -> ReassignablePartitionResponse:
    answer = ReassignablePartitionResponse(partition_index=wanted.partition_index, error_message=None)
    try:
        _partition(name, wanted.partition_index, context)
        if wanted.replicas is None:
            raise BrokerError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        validate_replicas(wanted.replicas, context.broker.metadata.broker_ids)
    except BrokerError as error:
        answer.error_code, answer.error_message = error.code, error.message
    return answer


def _partition(name: str, index: int, context: RequestContext) -> PartitionState:
    topic = context.broker.metadata.topics.get(name)
    if topic is None:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    if not 0 <= index < len(topic.partitions):
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}.")
    return topic.partitions[index]


async def handle_list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    """Tell which replicas are on their way: none."""
    return ListPartitionReassignmentsResponse(error_message=None)


async def handle_describe_log_dirs(request: DescribeLogDirsRequest, context: RequestContext) -> DescribeLogDirsResponse:
    """Tell the log directories, their disks, and the size of the partitions asked for (null: of all)."""
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    return DescribeLogDirsResponse(
        results=[_described_directory(directory, wanted, context) for directory in context.broker.logs.directories]
    )


def _described_directory(
    directory: LogDirectory, wanted: set[tuple[str, int]] | None, context: RequestContext
) -> DescribeLogDirsResult:
    logs = context.broker.logs
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for log in logs.logs():
        if log.topic == CLUSTER_METADATA or (wanted is not None and (log.topic, log.partition) not in wanted):
            continue
        if logs.directory_of(log.topic, log.partition) is directory:
            described = DescribeLogDirsPartition(partition_index=log.partition, partition_size=log.size_bytes)
            topics.setdefault(log.topic, []).append(described)
    result = DescribeLogDirsResult(
        log_dir=os.path.abspath(directory.path),
        topics=[DescribeLogDirsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
    )
    try:
        disk = os.statvfs(directory.path)
        result.total_bytes = disk.f_blocks * disk.f_frsize
        result.usable_bytes = disk.f_bavail * disk.f_frsize
    except OSError:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    return result


async def handle_alter_replica_log_dirs(
    request: AlterReplicaLogDirsRequest, context: RequestContext
) -> AlterReplicaLogDirsResponse:
    """Move partitions to another log directory: to the one where they are, so far."""
    results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for wanted in request.dirs:
        for topic in wanted.topics:
            answers = results.setdefault(topic.name, [])
            for index in topic.partitions:
                code = _movable(wanted.path, topic.name, index, context)
                answers.append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code))
    return AlterReplicaLogDirsResponse(
        results=[AlterReplicaLogDirTopicResult(topic_name=name, partitions=found) for name, found in results.items()]
    )


def _movable(path: str, topic: str, index: int, context: RequestContext) -> ErrorCode:
    logs = context.broker.logs
    target = next((home for home in logs.directories if _is_same(home.path, path)), None)
    if target is None:
        return ErrorCode.LOG_DIR_NOT_FOUND
    home = logs.directory_of(topic, index)
    if home is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE if home is target else ErrorCode.INVALID_REQUEST


def _is_same(path: str, other: str) -> bool:
    return os.path.abspath(path) == os.path.abspath(other)
