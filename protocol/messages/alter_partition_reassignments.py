"""AlterPartitionReassignments (key 45): move partitions to other replicas, or cancel that with null replicas (KIP-455).

v1 can forbid a change of the replication factor (KIP-860).
"""

from __future__ import annotations

from typing import Annotated

from ..schema import (
    IGNORABLE,
    Bool,
    BrokerId,
    ErrorCodeNumber,
    Int32,
    Message,
    PartitionIndex,
    String,
    Struct,
    TopicName,
    Versions,
)


class ReassignablePartition(Struct):
    partition_index: PartitionIndex = 0
    replicas: list[BrokerId] | None = None


class ReassignableTopic(Struct):
    name: TopicName = ""
    partitions: list[ReassignablePartition] = []


class AlterPartitionReassignmentsRequest(Message, versions="0-1", flexible="0+"):
    timeout_ms: Int32 = 60000
    allow_replication_factor_change: Annotated[Bool, Versions("1+")] = True
    topics: list[ReassignableTopic] = []


class ReassignablePartitionResponse(Struct):
    partition_index: PartitionIndex = 0
    error_code: ErrorCodeNumber = 0
    error_message: String | None = ""


class ReassignableTopicResponse(Struct):
    name: TopicName = ""
    partitions: list[ReassignablePartitionResponse] = []


class AlterPartitionReassignmentsResponse(Message, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Annotated[Bool, Versions("1+"), IGNORABLE] = True
    error_code: ErrorCodeNumber = 0
    error_message: String | None = ""
    responses: list[ReassignableTopicResponse] = []
