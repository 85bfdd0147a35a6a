"""ShareAcknowledge (key 79): say what became of acquired records (KIP-932). v0 was early access; v2 can renew locks.

Acknowledge types: 0 gap, 1 accept, 2 release, 3 reject, 4 renew.
"""

from __future__ import annotations

from typing import Annotated

from ..schema import (
    IGNORABLE,
    NO_UUID,
    Bool,
    BrokerId,
    ErrorCodeNumber,
    GroupId,
    Int8,
    Int32,
    Int64,
    Message,
    PartitionIndex,
    String,
    Struct,
    TopicId,
    Versions,
)


class AcknowledgementBatch(Struct):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    acknowledge_types: list[Int8] = []


class AcknowledgePartition(Struct):
    partition_index: PartitionIndex = 0
    acknowledgement_batches: list[AcknowledgementBatch] = []


class AcknowledgeTopic(Struct):
    topic_id: TopicId = NO_UUID
    partitions: list[AcknowledgePartition] = []


class ShareAcknowledgeRequest(Message, versions="0-2", flexible="0+"):
    group_id: GroupId | None = None
    member_id: String | None = ""
    share_session_epoch: Int32 = 0
    is_renew_ack: Annotated[Bool, Versions("2+")] = False
    topics: list[AcknowledgeTopic] = []


class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class PartitionData(Struct):
    partition_index: PartitionIndex = 0
    error_code: ErrorCodeNumber = 0
    error_message: String | None = None
    current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch()


class ShareAcknowledgeTopicResponse(Struct):
    topic_id: Annotated[TopicId, IGNORABLE] = NO_UUID
    partitions: list[PartitionData] = []


class NodeEndpoint(Struct):
    node_id: BrokerId = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = None


class ShareAcknowledgeResponse(Message, versions="0-2", flexible="0+"):
    throttle_time_ms: Annotated[Int32, IGNORABLE] = 0
    error_code: Annotated[ErrorCodeNumber, IGNORABLE] = 0
    error_message: String | None = None
    acquisition_lock_timeout_ms: Annotated[Int32, Versions("2+"), IGNORABLE] = 0
    responses: list[ShareAcknowledgeTopicResponse] = []
    node_endpoints: list[NodeEndpoint] = []
