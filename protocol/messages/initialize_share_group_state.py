"""InitializeShareGroupState (key 83): creates the state of share partitions (KIP-932). Spoken between brokers only."""

from __future__ import annotations

from ..schema import NO_UUID, Int16, Int32, Int64, Message, String, Struct, Uuid


class PartitionData(Struct):
    partition: Int32 = 0
    state_epoch: Int32 = 0
    start_offset: Int64 = 0


class InitializeStateData(Struct):
    topic_id: Uuid = NO_UUID
    partitions: list[PartitionData] = []


class InitializeShareGroupStateRequest(Message, versions="0", flexible="0+"):
    group_id: String = ""
    topics: list[InitializeStateData] = []


class PartitionResult(Struct):
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None


class InitializeStateResult(Struct):
    topic_id: Uuid = NO_UUID
    partitions: list[PartitionResult] = []


class InitializeShareGroupStateResponse(Message, versions="0", flexible="0+"):
    results: list[InitializeStateResult] = []
