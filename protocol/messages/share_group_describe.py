"""ShareGroupDescribe (key 77): state, members and assignments of share groups (KIP-932). v0 was early access in 3.9."""

from __future__ import annotations

from typing import Annotated

from ..schema import (
    MENTIONED,
    NO_UUID,
    Bool,
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


class ShareGroupDescribeRequest(Message, versions="0-1", flexible="0+"):
    group_ids: list[GroupId] = []
    include_authorized_operations: Bool = False


class TopicPartitions(Struct):
    topic_id: TopicId = NO_UUID
    topic_name: TopicName = ""
    partitions: list[PartitionIndex] = []


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = []


class Member(Struct):
    member_id: String = ""
    rack_id: String | None = None
    member_epoch: Int32 = 0
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: Annotated[list[TopicName], MENTIONED] = []
    assignment: Assignment = Assignment()


class DescribedGroup(Struct):
    error_code: ErrorCodeNumber = 0
    error_message: String | None = None
    group_id: GroupId = ""
    group_state: String = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    assignor_name: String = ""
    members: list[Member] = []
    authorized_operations: Int32 = -0x80000000


class ShareGroupDescribeResponse(Message, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = 0
    groups: list[DescribedGroup] = []
