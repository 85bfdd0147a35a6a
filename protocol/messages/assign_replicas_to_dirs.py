"""AssignReplicasToDirs (key 73): a broker tells the controller which directories its replicas are in (KIP-858).

Spoken between brokers and controllers only.
"""

from __future__ import annotations

from typing import Annotated

from ..schema import (
    NO_UUID,
    SENDER,
    BrokerId,
    ErrorCodeNumber,
    Int32,
    Int64,
    Message,
    PartitionIndex,
    Struct,
    TopicId,
    Uuid,
)


class PartitionData(Struct):
    partition_index: PartitionIndex = 0


class TopicData(Struct):
    topic_id: TopicId = NO_UUID
    partitions: list[PartitionData] = []


class DirectoryData(Struct):
    id: Uuid = NO_UUID
    topics: list[TopicData] = []


class AssignReplicasToDirsRequest(Message, versions="0", flexible="0+"):
    broker_id: Annotated[BrokerId, SENDER] = 0
    broker_epoch: Int64 = -1
    directories: list[DirectoryData] = []


class PartitionResult(Struct):
    partition_index: PartitionIndex = 0
    error_code: ErrorCodeNumber = 0


class TopicResult(Struct):
    topic_id: TopicId = NO_UUID
    partitions: list[PartitionResult] = []


class DirectoryResult(Struct):
    id: Uuid = NO_UUID
    topics: list[TopicResult] = []


class AssignReplicasToDirsResponse(Message, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = 0
    error_code: ErrorCodeNumber = 0
    directories: list[DirectoryResult] = []
