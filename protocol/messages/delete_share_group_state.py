"""DeleteShareGroupState (key 86): a group coordinator deletes the state of share partitions (KIP-932).

Spoken between brokers only.
"""

from __future__ import annotations

from ..schema import NO_UUID, ErrorCodeNumber, Message, PartitionIndex, String, Struct, TopicId


class PartitionData(Struct):
    partition: PartitionIndex = 0


class DeleteStateData(Struct):
    topic_id: TopicId = NO_UUID
    partitions: list[PartitionData] = []


class DeleteShareGroupStateRequest(Message, versions="0", flexible="0+"):
    group_id: String = ""
    topics: list[DeleteStateData] = []


class PartitionResult(Struct):
    partition: PartitionIndex = 0
    error_code: ErrorCodeNumber = 0
    error_message: String | None = None


class DeleteStateResult(Struct):
    topic_id: TopicId = NO_UUID
    partitions: list[PartitionResult] = []


class DeleteShareGroupStateResponse(Message, versions="0", flexible="0+"):
    results: list[DeleteStateResult] = []
