"""ShareGroupHeartbeat (key 76): join, stay in and leave a share group (KIP-932).

v0 was early access in 3.9; 4.x has v1.
"""

from __future__ import annotations

from typing import Annotated

from ..schema import (
    MENTIONED,
    NO_UUID,
    ErrorCodeNumber,
    GroupId,
    Int32,
    Message,
    PartitionIndex,
    String,
    Struct,
    TopicId,
    TopicName,
)


class ShareGroupHeartbeatRequest(Message, versions="0-1", flexible="0+"):
    group_id: GroupId = ""
    member_id: String = ""
    member_epoch: Int32 = 0
    rack_id: String | None = None
    subscribed_topic_names: Annotated[list[TopicName] | None, MENTIONED] = None


class TopicPartitions(Struct):
    topic_id: TopicId = NO_UUID
    partitions: list[PartitionIndex] = []


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = []


class ShareGroupHeartbeatResponse(Message, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = 0
    error_code: ErrorCodeNumber = 0
    error_message: String | None = None
    member_id: String | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: Assignment | None = None
