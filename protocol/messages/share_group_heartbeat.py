"""ShareGroupHeartbeat (key 76): join, stay in and leave a share group (KIP-932).

v0 was early access in 3.9; 4.x has v1.
"""

from __future__ import annotations

from ..schema import NO_UUID, Int16, Int32, Message, String, Struct, Uuid


class ShareGroupHeartbeatRequest(Message, versions="0-1", flexible="0+"):
    group_id: String = ""
    member_id: String = ""
    member_epoch: Int32 = 0
    rack_id: String | None = None
    subscribed_topic_names: list[String] | None = None


class TopicPartitions(Struct):
    topic_id: Uuid = NO_UUID
    partitions: list[Int32] = []


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = []


class ShareGroupHeartbeatResponse(Message, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    member_id: String | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: Assignment | None = None
