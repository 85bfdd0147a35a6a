"""ShareGroupDescribe (key 77): state, members and assignments of share groups (KIP-932). v0 was early access in 3.9."""

from __future__ import annotations

from ..schema import NO_UUID, Bool, Int16, Int32, Message, String, Struct, Uuid


class ShareGroupDescribeRequest(Message, versions="0-1", flexible="0+"):
    group_ids: list[String] = []
    include_authorized_operations: Bool = False


class TopicPartitions(Struct):
    topic_id: Uuid = NO_UUID
    topic_name: String = ""
    partitions: list[Int32] = []


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = []


class Member(Struct):
    member_id: String = ""
    rack_id: String | None = None
    member_epoch: Int32 = 0
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: list[String] = []
    assignment: Assignment = Assignment()


class DescribedGroup(Struct):
    error_code: Int16 = 0
    error_message: String | None = None
    group_id: String = ""
    group_state: String = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    assignor_name: String = ""
    members: list[Member] = []
    authorized_operations: Int32 = -0x80000000


class ShareGroupDescribeResponse(Message, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = 0
    groups: list[DescribedGroup] = []
