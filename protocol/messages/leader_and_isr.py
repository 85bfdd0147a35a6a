"""LeaderAndIsr (key 4): a ZooKeeper-based controller tells brokers which partitions they lead or follow.

Spoken between brokers only.
"""

from __future__ import annotations

from typing import Annotated

from ..schema import (
    IGNORABLE,
    NO_UUID,
    Bool,
    BrokerId,
    ErrorCodeNumber,
    Int8,
    Int32,
    Int64,
    Message,
    PartitionIndex,
    String,
    Struct,
    TopicId,
    TopicName,
    Versions,
)


class LeaderAndIsrPartitionState(Struct):
    topic_name: Annotated[TopicName, Versions("0-1"), IGNORABLE] = ""
    partition_index: PartitionIndex = 0
    controller_epoch: Int32 = 0
    leader: BrokerId = 0
    leader_epoch: Int32 = 0
    isr: list[BrokerId] = []
    partition_epoch: Int32 = 0
    replicas: list[BrokerId] = []
    adding_replicas: Annotated[list[BrokerId], Versions("3+"), IGNORABLE] = []
    removing_replicas: Annotated[list[BrokerId], Versions("3+"), IGNORABLE] = []
    is_new: Annotated[Bool, Versions("1+"), IGNORABLE] = False
    leader_recovery_state: Annotated[Int8, Versions("6+")] = 0


class LeaderAndIsrTopicState(Struct):
    topic_name: TopicName = ""
    topic_id: Annotated[TopicId, Versions("5+"), IGNORABLE] = NO_UUID
    partition_states: list[LeaderAndIsrPartitionState] = []


class LeaderAndIsrLiveLeader(Struct):
    broker_id: BrokerId = 0
    host_name: String = ""
    port: Int32 = 0


class LeaderAndIsrRequest(Message, versions="0-7", flexible="4+"):
    controller_id: BrokerId = 0
    is_kraft_controller: Annotated[Bool, Versions("7+")] = False
    controller_epoch: Int32 = 0
    broker_epoch: Annotated[Int64, Versions("2+"), IGNORABLE] = -1
    type: Annotated[Int8, Versions("5+")] = 0
    ungrouped_partition_states: Annotated[list[LeaderAndIsrPartitionState], Versions("0-1")] = []
    topic_states: Annotated[list[LeaderAndIsrTopicState], Versions("2+")] = []
    live_leaders: list[LeaderAndIsrLiveLeader] = []


class LeaderAndIsrPartitionError(Struct):
    topic_name: Annotated[TopicName, Versions("0-4"), IGNORABLE] = ""
    partition_index: PartitionIndex = 0
    error_code: ErrorCodeNumber = 0


class LeaderAndIsrTopicError(Struct):
    topic_id: TopicId = NO_UUID
    partition_errors: list[LeaderAndIsrPartitionError] = []


class LeaderAndIsrResponse(Message, versions="0-7", flexible="4+"):
    error_code: ErrorCodeNumber = 0
    partition_errors: Annotated[list[LeaderAndIsrPartitionError], Versions("0-4")] = []
    topics: Annotated[list[LeaderAndIsrTopicError], Versions("5+")] = []
