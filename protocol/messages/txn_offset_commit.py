"""TxnOffsetCommit (key 28): store a group's offsets as part of a transaction (KIP-98).

v2 adds leader epochs (KIP-320); v3 is flexible and fences members by generation (KIP-447); v6 names topics by id.
"""

from __future__ import annotations

from typing import Annotated

from ..schema import (
    IGNORABLE,
    NO_UUID,
    ErrorCodeNumber,
    GroupId,
    Int16,
    Int32,
    Int64,
    Message,
    PartitionIndex,
    ProducerId,
    String,
    Struct,
    TopicId,
    TopicName,
    TransactionalId,
    Versions,
)


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: PartitionIndex = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, Versions("2+"), IGNORABLE] = -1
    committed_metadata: String | None = ""


class TxnOffsetCommitRequestTopic(Struct):
    name: Annotated[TopicName, Versions("0-5"), IGNORABLE] = ""
    topic_id: Annotated[TopicId, Versions("6+"), IGNORABLE] = NO_UUID
    partitions: list[TxnOffsetCommitRequestPartition] = []


class TxnOffsetCommitRequest(Message, versions="0-6", flexible="3+"):
    transactional_id: TransactionalId = ""
    group_id: GroupId = ""
    producer_id: ProducerId = 0
    producer_epoch: Int16 = 0
    generation_id: Annotated[Int32, Versions("3+")] = -1
    member_id: Annotated[String, Versions("3+")] = ""
    group_instance_id: Annotated[String | None, Versions("3+")] = None
    topics: list[TxnOffsetCommitRequestTopic] = []


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: PartitionIndex = 0
    error_code: ErrorCodeNumber = 0


class TxnOffsetCommitResponseTopic(Struct):
    name: Annotated[TopicName, Versions("0-5"), IGNORABLE] = ""
    topic_id: Annotated[TopicId, Versions("6+"), IGNORABLE] = NO_UUID
    partitions: list[TxnOffsetCommitResponsePartition] = []


class TxnOffsetCommitResponse(Message, versions="0-6", flexible="3+"):
    throttle_time_ms: Int32 = 0
    topics: list[TxnOffsetCommitResponseTopic] = []
