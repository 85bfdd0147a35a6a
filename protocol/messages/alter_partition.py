"""AlterPartition (key 56): a leader asks the controller to change its in-sync replicas. Spoken between brokers only."""

from __future__ import annotations

from typing import Annotated

from ..schema import (
    IGNORABLE,
    MINUS_ONE_ON_ERROR,
    NO_UUID,
    SENDER,
    BrokerId,
    ErrorCodeNumber,
    Int8,
    Int32,
    Int64,
    Message,
    PartitionIndex,
    Struct,
    TopicId,
    TopicName,
    Versions,
)


class BrokerState(Struct):
    broker_id: BrokerId = 0
    broker_epoch: Int64 = -1


class PartitionData(Struct):
    partition_index: PartitionIndex = 0
    leader_epoch: Int32 = 0
    new_isr: Annotated[list[BrokerId], Versions("0-2")] = []
    new_isr_with_epochs: Annotated[list[BrokerState], Versions("3+")] = []
    leader_recovery_state: Annotated[Int8, Versions("1+")] = 0
    partition_epoch: Int32 = 0


class TopicData(Struct):
    topic_name: Annotated[TopicName, Versions("0-1"), IGNORABLE] = ""
    topic_id: Annotated[TopicId, Versions("2+"), IGNORABLE] = NO_UUID
    partitions: list[PartitionData] = []


class AlterPartitionRequest(Message, versions="0-3", flexible="0+"):
    broker_id: Annotated[BrokerId, SENDER] = 0
    broker_epoch: Int64 = -1
    topics: list[TopicData] = []


class PartitionDataResponse(Struct):
    partition_index: PartitionIndex = 0
    error_code: ErrorCodeNumber = 0
    leader_id: Annotated[BrokerId, MINUS_ONE_ON_ERROR] = 0
    leader_epoch: Int32 = 0
    isr: list[BrokerId] = []
    leader_recovery_state: Annotated[Int8, Versions("1+"), IGNORABLE] = 0
    partition_epoch: Int32 = 0


class TopicDataResponse(Struct):
    topic_name: Annotated[TopicName, Versions("0-1"), IGNORABLE] = ""
    topic_id: Annotated[TopicId, Versions("2+"), IGNORABLE] = NO_UUID
    partitions: list[PartitionDataResponse] = []


class AlterPartitionResponse(Message, versions="0-3", flexible="0+"):
    throttle_time_ms: Int32 = 0
    error_code: ErrorCodeNumber = 0
    topics: list[TopicDataResponse] = []
