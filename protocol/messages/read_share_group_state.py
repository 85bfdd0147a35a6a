"""ReadShareGroupState (key 84): a share partition's leader loads its delivery state (KIP-932).

Spoken between brokers only.
"""

from __future__ import annotations

from ..schema import (
    NO_UUID,
    ErrorCodeNumber,
    Int8,
    Int16,
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
    leader_epoch: Int32 = 0


class ReadStateData(Struct):
    topic_id: TopicId = NO_UUID
    partitions: list[PartitionData] = []


class ReadShareGroupStateRequest(Message, versions="0", flexible="0+"):
    group_id: String = ""
    topics: list[ReadStateData] = []


class StateBatch(Struct):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_state: Int8 = 0
    delivery_count: Int16 = 0


class PartitionResult(Struct):
    partition: PartitionIndex = 0
    error_code: ErrorCodeNumber = 0
    error_message: String | None = None
    state_epoch: Int32 = 0
    start_offset: Int64 = 0
    state_batches: list[StateBatch] = []


class ReadStateResult(Struct):
    topic_id: TopicId = NO_UUID
    partitions: list[PartitionResult] = []


class ReadShareGroupStateResponse(Message, versions="0", flexible="0+"):
    results: list[ReadStateResult] = []
