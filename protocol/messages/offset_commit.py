"""OffsetCommit (key 8): store how far a group has read.

- v0 had only topics and meant offsets in ZooKeeper; v1 adds the generation, the member and a timestamp per partition.
- v2 to v4 have a retention time in milliseconds instead, from v5 on only the broker's setting counts (KIP-211).
- v6 adds the leader epoch of the record (KIP-320); v7 static members (KIP-345); v8 is flexible.
- v9 serves groups of the consumer protocol as well: the generation is then a member epoch (KIP-848).
- v10 names topics by id (KIP-516).

A generation of -1 with an empty member id is a commit from outside of any group.
"""

from __future__ import annotations

from typing import Annotated

from ..schema import (
    IGNORABLE,
    NO_UUID,
    ErrorCodeNumber,
    GroupId,
    Int32,
    Int64,
    Message,
    PartitionIndex,
    String,
    Struct,
    TopicId,
    TopicName,
    Versions,
)


class OffsetCommitRequestPartition(Struct):
    partition_index: PartitionIndex = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, Versions("6+"), IGNORABLE] = -1
    commit_timestamp: Annotated[Int64, Versions("1")] = -1
    committed_metadata: String | None = ""


class OffsetCommitRequestTopic(Struct):
    name: Annotated[TopicName, Versions("0-9"), IGNORABLE] = ""
    topic_id: Annotated[TopicId, Versions("10+"), IGNORABLE] = NO_UUID
    partitions: list[OffsetCommitRequestPartition] = []


class OffsetCommitRequest(Message, versions="0-10", flexible="8+"):
    group_id: GroupId = ""
    generation_id_or_member_epoch: Annotated[Int32, Versions("1+"), IGNORABLE] = -1
    member_id: Annotated[String, Versions("1+"), IGNORABLE] = ""
    group_instance_id: Annotated[String | None, Versions("7+")] = None
    retention_time_ms: Annotated[Int64, Versions("2-4"), IGNORABLE] = -1
    topics: list[OffsetCommitRequestTopic] = []


class OffsetCommitResponsePartition(Struct):
    partition_index: PartitionIndex = 0
    error_code: ErrorCodeNumber = 0


class OffsetCommitResponseTopic(Struct):
    name: Annotated[TopicName, Versions("0-9"), IGNORABLE] = ""
    topic_id: Annotated[TopicId, Versions("10+"), IGNORABLE] = NO_UUID
    partitions: list[OffsetCommitResponsePartition] = []


class OffsetCommitResponse(Message, versions="0-10", flexible="8+"):
    throttle_time_ms: Annotated[Int32, Versions("3+"), IGNORABLE] = 0
    topics: list[OffsetCommitResponseTopic] = []
