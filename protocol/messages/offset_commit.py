"""OffsetCommit (key 8)."""

from __future__ import annotations

from typing import Annotated

from ..schema import IGNORABLE, NO_UUID, Int16, Int32, Int64, Message, String, Struct, Uuid, Versions


class OffsetCommitRequestPartition(Struct):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, Versions("6+"), IGNORABLE] = -1
    commit_timestamp: Annotated[Int64, Versions("1")] = -1
    committed_metadata: String | None = ""


class OffsetCommitRequestTopic(Struct):
    name: Annotated[String, Versions("0-9"), IGNORABLE] = ""
    topic_id: Annotated[Uuid, Versions("10+"), IGNORABLE] = NO_UUID
    partitions: list[OffsetCommitRequestPartition] = []


class OffsetCommitRequest(Message, versions="0-10", flexible="8+"):
    group_id: String = ""
    generation_id_or_member_epoch: Annotated[Int32, Versions("1+"), IGNORABLE] = -1
    member_id: Annotated[String, Versions("1+"), IGNORABLE] = ""
    group_instance_id: Annotated[String | None, Versions("7+")] = None
    retention_time_ms: Annotated[Int64, Versions("2-4"), IGNORABLE] = -1
    topics: list[OffsetCommitRequestTopic] = []


class OffsetCommitResponsePartition(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetCommitResponseTopic(Struct):
    name: Annotated[String, Versions("0-9"), IGNORABLE] = ""
    topic_id: Annotated[Uuid, Versions("10+"), IGNORABLE] = NO_UUID
    partitions: list[OffsetCommitResponsePartition] = []


class OffsetCommitResponse(Message, versions="0-10", flexible="8+"):
    throttle_time_ms: Annotated[Int32, Versions("3+"), IGNORABLE] = 0
    topics: list[OffsetCommitResponseTopic] = []
