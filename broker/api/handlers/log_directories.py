"""Log directories: their contents, and moves of replicas between them (KIP-113, KIP-827)."""

from __future__ import annotations

import os

from ....protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType
from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.internal_topics import CLUSTER_METADATA
from ....protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from ....protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ....protocol.topic_partition import AnyTopicPartition
from ....storage.disk.log_directory import LogDirectory
from ....storage.log_move import LogMove
from ..contract import RequestContext


def handle_describe_log_dirs(request: DescribeLogDirsRequest, context: RequestContext) -> DescribeLogDirsResponse:
    """Describe the log directories, their disks, and the sizes of the requested partitions (null: of all)."""
    if not context.may(AclOperation.DESCRIBE, AclResourceType.CLUSTER, CLUSTER_NAME):
        # Before version 3 there is no field for the error, and the list is empty in Kafka as well.
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    return DescribeLogDirsResponse(
        results=[_described_directory(directory, wanted, context) for directory in context.services.logs.directories]
    )


def _described_directory(
    directory: LogDirectory, wanted: set[AnyTopicPartition] | None, context: RequestContext
) -> DescribeLogDirsResult:
    if directory.health.failure is not None:
        return DescribeLogDirsResult(log_dir=os.path.abspath(directory.path), error_code=ErrorCode.KAFKA_STORAGE_ERROR)
    logs = context.services.logs
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for log in logs.logs():
        if log.topic == CLUSTER_METADATA or (wanted is not None and (log.topic, log.partition) not in wanted):
            continue
        found = topics.setdefault(log.topic, [])
        if logs.directory_of(log.topic, log.partition) is directory:
            found.append(DescribeLogDirsPartition(partition_index=log.partition, partition_size=log.size_bytes))
        move = logs.move_of(log.topic, log.partition)
        if move is not None and move.target is directory:
            found.append(_described_move(move))
    result = DescribeLogDirsResult(
        log_dir=os.path.abspath(directory.path),
        topics=[DescribeLogDirsTopic(name=name, partitions=found) for name, found in topics.items() if found],
    )
    try:
        disk = os.statvfs(directory.path)
        result.total_bytes = disk.f_blocks * disk.f_frsize
        result.usable_bytes = disk.f_bavail * disk.f_frsize
    except OSError:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    return result


def _described_move(move: LogMove) -> DescribeLogDirsPartition:
    copy = move.copy
    return DescribeLogDirsPartition(
        partition_index=copy.partition, partition_size=copy.size_bytes, offset_lag=move.lag, is_future_key=True
    )


def handle_alter_replica_log_dirs(
    request: AlterReplicaLogDirsRequest, context: RequestContext
) -> AlterReplicaLogDirsResponse:
    """Start moving replicas to another log directory; DescribeLogDirs shows the progress."""
    results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for wanted in request.dirs:
        for topic in wanted.topics:
            answers = results.setdefault(topic.name, [])
            for index in topic.partitions:
                code = _begin_move(wanted.path, topic.name, index, context)
                answers.append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code))
    return AlterReplicaLogDirsResponse(
        results=[AlterReplicaLogDirTopicResult(topic_name=name, partitions=found) for name, found in results.items()]
    )


def _begin_move(path: str, topic: str, index: int, context: RequestContext) -> ErrorCode:
    services = context.services
    target = next((home for home in services.logs.directories if _is_same(home.path, path)), None)
    if target is None:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if target.health.failure is not None or services.partitions.is_offline(topic, index):
        return ErrorCode.KAFKA_STORAGE_ERROR
    partition = services.partitions.find(topic, index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if partition.role is not None and services.logs.directory_of(topic, index) is not target:
        return ErrorCode.INVALID_REQUEST
    try:
        services.log_moves.start(partition, target)
    except BrokerError as error:
        return error.code
    except OSError:
        return ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.NONE


def _is_same(path: str, other: str) -> bool:
    return os.path.abspath(path) == os.path.abspath(other)
