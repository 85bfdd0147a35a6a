"""CreatePartitions (key 37): raise the number of partitions of topics (KIP-195).

v2 is flexible, v3 may answer THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

from __future__ import annotations

from ..schema import Bool, Int16, Int32, Message, String, Struct


class CreatePartitionsAssignment(Struct):
    broker_ids: list[Int32] = []


class CreatePartitionsTopic(Struct):
    name: String = ""
    count: Int32 = 0
    assignments: list[CreatePartitionsAssignment] | None = []


class CreatePartitionsRequest(Message, versions="0-3", flexible="2+"):
    topics: list[CreatePartitionsTopic] = []
    timeout_ms: Int32 = 0
    validate_only: Bool = False


class CreatePartitionsTopicResult(Struct):
    name: String = ""
    error_code: Int16 = 0
    error_message: String | None = None


class CreatePartitionsResponse(Message, versions="0-3", flexible="2+"):
    throttle_time_ms: Int32 = 0
    results: list[CreatePartitionsTopicResult] = []
