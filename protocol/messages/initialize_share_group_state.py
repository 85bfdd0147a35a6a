"""InitializeShareGroupState (key 83): creates the state of share partitions (KIP-932). Spoken between brokers only."""

from __future__ import annotations

from ..schema import (
    NO_UUID,
    ErrorCodeNumber,
    Int32,
    Int64,
    Message,
    PartitionIndex,
    String,
    Struct,
    TopicId,
)


class PartitionData(Struct):
    partition: PartitionIndex = 0
    state_epoch: Int32 = 0
    start_offset: Int64 = 0


class InitializeStateData(Struct):
    topic_id: TopicId = NO_UUID
    partitions: list[PartitionData] = []


class InitializeShareGroupStateRequest(Message, versions="0", flexible="0+"):
    group_id: String = ""
    topics: list[InitializeStateData] = []


class PartitionResult(Struct):
    partition: PartitionIndex = 0
    error_code: ErrorCodeNumber = 0
    error_message: String | None = None


class InitializeStateResult(Struct):
    topic_id: TopicId = NO_UUID
    partitions: list[PartitionResult] = []


class InitializeShareGroupStateResponse(Message, versions="0", flexible="0+"):
    results: list[InitializeStateResult] = []
