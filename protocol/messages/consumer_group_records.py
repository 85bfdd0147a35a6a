"""Keys and values in `__consumer_offsets` that belong to groups of the consumer protocol (KIP-848).

Each is an int16 and then the message; a key's number tells its type, 3 to 8 in the order of this file. A record without
a value deletes what its key names.
"""

from __future__ import annotations

from typing import Annotated

from ..schema import (
    NO_UUID,
    Bytes,
    GroupId,
    Int8,
    Int32,
    Message,
    PartitionIndex,
    String,
    Struct,
    Tag,
    TopicId,
    TopicName,
)


class ConsumerGroupMetadataKey(Message, versions="3"):
    group_id: GroupId = ""


class ConsumerGroupMetadataValue(Message, versions="0", flexible="0+"):
    epoch: Int32 = 0


class ConsumerGroupPartitionMetadataKey(Message, versions="4"):
    group_id: GroupId = ""


class PartitionMetadata(Struct):
    partition: PartitionIndex = 0
    racks: list[String] = []


class TopicMetadata(Struct):
    topic_id: TopicId = NO_UUID
    topic_name: TopicName = ""
    num_partitions: Int32 = 0
    partition_metadata: list[PartitionMetadata] = []


class ConsumerGroupPartitionMetadataValue(Message, versions="0", flexible="0+"):
    topics: list[TopicMetadata] = []


class ConsumerGroupMemberMetadataKey(Message, versions="5"):
    group_id: GroupId = ""
    member_id: String = ""


class ClassicProtocol(Struct):
    name: String = ""
    metadata: Bytes = b""


class ClassicMemberMetadata(Struct):
    session_timeout_ms: Int32 = 0
    supported_protocols: list[ClassicProtocol] = []


class ConsumerGroupMemberMetadataValue(Message, versions="0", flexible="0+"):
    instance_id: String | None = ""
    rack_id: String | None = ""
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: list[String] = []
    subscribed_topic_regex: String | None = ""
    rebalance_timeout_ms: Int32 = -1
    server_assignor: String | None = ""
    classic_member_metadata: Annotated[ClassicMemberMetadata | None, Tag(0)] = None


class ConsumerGroupTargetAssignmentMetadataKey(Message, versions="6"):
    group_id: GroupId = ""


class ConsumerGroupTargetAssignmentMetadataValue(Message, versions="0", flexible="0+"):
    assignment_epoch: Int32 = 0


class ConsumerGroupTargetAssignmentMemberKey(Message, versions="7"):
    group_id: GroupId = ""
    member_id: String = ""


class TopicPartition(Struct):
    topic_id: TopicId = NO_UUID
    partitions: list[PartitionIndex] = []


class ConsumerGroupTargetAssignmentMemberValue(Message, versions="0", flexible="0+"):
    topic_partitions: list[TopicPartition] = []


class ConsumerGroupCurrentMemberAssignmentKey(Message, versions="8"):
    group_id: GroupId = ""
    member_id: String = ""


class TopicPartitions(Struct):
    topic_id: TopicId = NO_UUID
    partitions: list[PartitionIndex] = []


class ConsumerGroupCurrentMemberAssignmentValue(Message, versions="0", flexible="0+"):
    member_epoch: Int32 = 0
    previous_member_epoch: Int32 = 0
    state: Int8 = 0
    assigned_partitions: list[TopicPartitions] = []
    partitions_pending_revocation: list[TopicPartitions] = []
