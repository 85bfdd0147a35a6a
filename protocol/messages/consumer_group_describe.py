"""ConsumerGroupDescribe (key 69): state, members, current and target assignments of consumer groups (KIP-848).

v1 tells members of the classic protocol from those of the new one (KIP-1099).
"""

from __future__ import annotations

from typing import Annotated

from ..schema import (
    IGNORABLE,
    MENTIONED,
    NO_UUID,
    Bool,
    ErrorCodeNumber,
    GroupId,
    Int8,
    Int32,
    Message,
    PartitionIndex,
    String,
    Struct,
    TopicId,
    TopicName,
    Versions,
)


class ConsumerGroupDescribeRequest(Message, versions="0-1", flexible="0+"):
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
    instance_id: String | None = None
    rack_id: String | None = None
    member_epoch: Int32 = 0
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: Annotated[list[TopicName], MENTIONED] = []
    subscribed_topic_regex: String | None = None
    assignment: Assignment = Assignment()
    target_assignment: Assignment = Assignment()
    member_type: Annotated[Int8, Versions("1+"), IGNORABLE] = -1


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


class ConsumerGroupDescribeResponse(Message, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = 0
    groups: list[DescribedGroup] = []
