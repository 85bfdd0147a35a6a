"""ConsumerGroupHeartbeat (key 68): join, stay in and leave a group of the consumer protocol (KIP-848).

One request does what JoinGroup, SyncGroup, Heartbeat and LeaveGroup do for classic groups: the member tells what it
wants and owns, null meaning "as before", and the broker answers with its target. Member epoch 0 joins, -1 leaves, -2
leaves for a while (static members). v1 adds subscriptions by regular expression and ids made by the client.
"""

from __future__ import annotations

from typing import Annotated

from ..schema import NO_UUID, Int16, Int32, Message, String, Struct, Uuid, Versions


class TopicPartitions(Struct):
    topic_id: Uuid = NO_UUID
    partitions: list[Int32] = []


class ConsumerGroupHeartbeatRequest(Message, versions="0-1", flexible="0+"):
    group_id: String = ""
    member_id: String = ""
    member_epoch: Int32 = 0
    instance_id: String | None = None
    rack_id: String | None = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: list[String] | None = None
    subscribed_topic_regex: Annotated[String | None, Versions("1+")] = None
    server_assignor: String | None = None
    topic_partitions: list[TopicPartitions] | None = None


class TopicPartitionsResponse(Struct):
    topic_id: Uuid = NO_UUID
    partitions: list[Int32] = []


class Assignment(Struct):
    topic_partitions: list[TopicPartitionsResponse] = []


class ConsumerGroupHeartbeatResponse(Message, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    member_id: String | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: Assignment | None = None
