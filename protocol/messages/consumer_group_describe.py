"""ConsumerGroupDescribe (key 69): state, members, current and target assignments of consumer groups (KIP-848).

v1 tells members of the classic protocol from those of the new one (KIP-1099).
"""

from __future__ import annotations

from typing import Annotated

from ..schema import IGNORABLE, NO_UUID, Bool, Int8, Int16, Int32, Message, String, Struct, Uuid, Versions


class ConsumerGroupDescribeRequest(Message, versions="0-1", flexible="0+"):
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
    instance_id: String | None = None
    rack_id: String | None = None
    member_epoch: Int32 = 0
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: list[String] = []
    subscribed_topic_regex: String | None = None
    assignment: Assignment = Assignment()
    target_assignment: Assignment = Assignment()
    member_type: Annotated[Int8, Versions("1+"), IGNORABLE] = -1


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


class ConsumerGroupDescribeResponse(Message, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = 0
    groups: list[DescribedGroup] = []
