"""CreatePartitions (key 37): raise the number of partitions of topics (KIP-195).

v2 is flexible, v3 may answer THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

from __future__ import annotations

from ..schema import Bool, BrokerId, ErrorCodeNumber, Int32, Message, String, Struct, TopicName


class CreatePartitionsAssignment(Struct):
    broker_ids: list[BrokerId] = []


class CreatePartitionsTopic(Struct):
    name: TopicName = ""
    count: Int32 = 0
    assignments: list[CreatePartitionsAssignment] | None = []


class CreatePartitionsRequest(Message, versions="0-3", flexible="2+"):
    topics: list[CreatePartitionsTopic] = []
    timeout_ms: Int32 = 0
    validate_only: Bool = False


class CreatePartitionsTopicResult(Struct):
    name: TopicName = ""
    error_code: ErrorCodeNumber = 0
    error_message: String | None = None


class CreatePartitionsResponse(Message, versions="0-3", flexible="2+"):
    throttle_time_ms: Int32 = 0
    results: list[CreatePartitionsTopicResult] = []
