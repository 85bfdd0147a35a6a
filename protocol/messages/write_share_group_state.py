"""WriteShareGroupState (key 85): a share partition's leader saves its delivery state (KIP-932).

Spoken between brokers only.
"""

from __future__ import annotations

from typing import Annotated

from ..schema import (
    IGNORABLE,
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
    Versions,
)


class StateBatch(Struct):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_state: Int8 = 0
    delivery_count: Int16 = 0


class PartitionData(Struct):
    partition: PartitionIndex = 0
    state_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0
    delivery_complete_count: Annotated[Int32, Versions("1+"), IGNORABLE] = -1
    state_batches: list[StateBatch] = []


class WriteStateData(Struct):
    topic_id: TopicId = NO_UUID
    partitions: list[PartitionData] = []


class WriteShareGroupStateRequest(Message, versions="0-1", flexible="0+"):
    group_id: String = ""
    topics: list[WriteStateData] = []


class PartitionResult(Struct):
    partition: PartitionIndex = 0
    error_code: ErrorCodeNumber = 0
    error_message: String | None = None


class WriteStateResult(Struct):
    topic_id: TopicId = NO_UUID
    partitions: list[PartitionResult] = []


class WriteShareGroupStateResponse(Message, versions="0-1", flexible="0+"):
    results: list[WriteStateResult] = []
