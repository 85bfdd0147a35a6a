"""ConsumerGroupHeartbeat (key 68): join, stay in and leave a group of the consumer protocol (KIP-848).

One request does what JoinGroup, SyncGroup, Heartbeat and LeaveGroup do for classic groups: the member tells what it
wants and owns, null meaning "as before", and the broker answers with its target. Member epoch 0 joins, -1 leaves, -2
leaves for a while (static members). v1 adds subscriptions by regular expression and ids made by the client.
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
    Versions,
)


class TopicPartitions(Struct):
    topic_id: TopicId = NO_UUID
    partitions: list[PartitionIndex] = []


class ConsumerGroupHeartbeatRequest(Message, versions="0-1", flexible="0+"):
    group_id: GroupId = ""
    member_id: String = ""
    member_epoch: Int32 = 0
    instance_id: String | None = None
    rack_id: String | None = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: Annotated[list[TopicName] | None, MENTIONED] = None
    subscribed_topic_regex: Annotated[String | None, Versions("1+")] = None
    server_assignor: String | None = None
    topic_partitions: list[TopicPartitions] | None = None


class TopicPartitionsResponse(Struct):
    topic_id: TopicId = NO_UUID
    partitions: list[PartitionIndex] = []


class Assignment(Struct):
    topic_partitions: list[TopicPartitionsResponse] = []


class ConsumerGroupHeartbeatResponse(Message, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = 0
    error_code: ErrorCodeNumber = 0
    error_message: String | None = None
    member_id: String | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: Assignment | None = None
