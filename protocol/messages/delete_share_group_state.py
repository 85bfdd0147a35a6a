"""DeleteShareGroupState (key 86): a group coordinator deletes the state of share partitions (KIP-932).

Spoken between brokers only.
"""

from __future__ import annotations

from ..schema import NO_UUID, Int16, Int32, Message, String, Struct, Uuid


class PartitionData(Struct):
    partition: Int32 = 0


class DeleteStateData(Struct):
    topic_id: Uuid = NO_UUID
    partitions: list[PartitionData] = []


class DeleteShareGroupStateRequest(Message, versions="0", flexible="0+"):
    group_id: String = ""
    topics: list[DeleteStateData] = []


class PartitionResult(Struct):
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None


class DeleteStateResult(Struct):
    topic_id: Uuid = NO_UUID
    partitions: list[PartitionResult] = []


class DeleteShareGroupStateResponse(Message, versions="0", flexible="0+"):
    results: list[DeleteStateResult] = []
