"""StopReplica (key 5): a ZooKeeper-based controller tells brokers to stop, and perhaps delete, replicas.

Spoken between brokers only.
"""

from __future__ import annotations

from typing import Annotated

from ..schema import (
    IGNORABLE,
    Bool,
    BrokerId,
    ErrorCodeNumber,
    Int32,
    Int64,
    Message,
    PartitionIndex,
    Struct,
    TopicName,
    Versions,
)


class StopReplicaPartitionV0(Struct):
    topic_name: TopicName = ""
    partition_index: PartitionIndex = 0


class StopReplicaTopicV1(Struct):
    name: TopicName = ""
    partition_indexes: list[PartitionIndex] = []


class StopReplicaPartitionState(Struct):
    partition_index: PartitionIndex = 0
    leader_epoch: Int32 = -1
    delete_partition: Bool = False


class StopReplicaTopicState(Struct):
    topic_name: TopicName = ""
    partition_states: list[StopReplicaPartitionState] = []


class StopReplicaRequest(Message, versions="0-4", flexible="2+"):
    controller_id: BrokerId = 0
    is_kraft_controller: Annotated[Bool, Versions("4+")] = False
    controller_epoch: Int32 = 0
    broker_epoch: Annotated[Int64, Versions("1+"), IGNORABLE] = -1
    delete_partitions: Annotated[Bool, Versions("0-2")] = False
    ungrouped_partitions: Annotated[list[StopReplicaPartitionV0], Versions("0")] = []
    topics: Annotated[list[StopReplicaTopicV1], Versions("1-2")] = []
    topic_states: Annotated[list[StopReplicaTopicState], Versions("3+")] = []


class StopReplicaPartitionError(Struct):
    topic_name: TopicName = ""
    partition_index: PartitionIndex = 0
    error_code: ErrorCodeNumber = 0


class StopReplicaResponse(Message, versions="0-4", flexible="2+"):
    error_code: ErrorCodeNumber = 0
    partition_errors: list[StopReplicaPartitionError] = []
