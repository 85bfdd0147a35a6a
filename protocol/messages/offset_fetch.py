"""OffsetFetch (key 9): ask how far a group has read.

- v0 meant offsets in ZooKeeper; v2 takes null topics as "all" and reports errors of the whole group on top.
- v5 adds leader epochs (KIP-320); v6 is flexible; v7 can insist on offsets that no open transaction may change.
- v8 asks for several groups at once: `groups` takes the place of the fields on top (KIP-709).
- v9 adds the member, for groups of the consumer protocol (KIP-848); v10 names topics by id (KIP-516).

A partition without a commit is answered with offset -1 and no error.
"""

from __future__ import annotations

from typing import Annotated

from ..schema import (
    IGNORABLE,
    MINUS_ONE_ON_ERROR,
    NO_UUID,
    Bool,
    ErrorCodeNumber,
    GroupId,
    Int32,
    Int64,
    Message,
    Nullable,
    PartitionIndex,
    String,
    Struct,
    TopicId,
    TopicName,
    Versions,
)


class OffsetFetchRequestTopic(Struct):
    name: TopicName = ""
    partition_indexes: list[PartitionIndex] = []


class OffsetFetchRequestTopics(Struct):
    name: Annotated[TopicName, Versions("8-9"), IGNORABLE] = ""
    topic_id: Annotated[TopicId, Versions("10+"), IGNORABLE] = NO_UUID
    partition_indexes: list[PartitionIndex] = []


class OffsetFetchRequestGroup(Struct):
    group_id: GroupId = ""
    member_id: Annotated[String | None, Versions("9+"), IGNORABLE] = None
    member_epoch: Annotated[Int32, Versions("9+"), IGNORABLE] = -1
    topics: list[OffsetFetchRequestTopics] | None = []


class OffsetFetchRequest(Message, versions="0-10", flexible="6+"):
    group_id: Annotated[GroupId, Versions("0-7")] = ""
    topics: Annotated[list[OffsetFetchRequestTopic] | None, Versions("0-7"), Nullable("2-7")] = []
    groups: Annotated[list[OffsetFetchRequestGroup], Versions("8+")] = []
    require_stable: Annotated[Bool, Versions("7+")] = False


class OffsetFetchResponsePartition(Struct):
    partition_index: PartitionIndex = 0
    committed_offset: Annotated[Int64, MINUS_ONE_ON_ERROR] = 0
    committed_leader_epoch: Annotated[Int32, Versions("5-7"), IGNORABLE] = -1
    metadata: String | None = ""
    error_code: ErrorCodeNumber = 0


class OffsetFetchResponseTopic(Struct):
    name: TopicName = ""
    partitions: list[OffsetFetchResponsePartition] = []


class OffsetFetchResponsePartitions(Struct):
    partition_index: PartitionIndex = 0
    committed_offset: Annotated[Int64, MINUS_ONE_ON_ERROR] = 0
    committed_leader_epoch: Annotated[Int32, IGNORABLE] = -1
    metadata: String | None = ""
    error_code: ErrorCodeNumber = 0


class OffsetFetchResponseTopics(Struct):
    name: Annotated[TopicName, Versions("8-9"), IGNORABLE] = ""
    topic_id: Annotated[TopicId, Versions("10+"), IGNORABLE] = NO_UUID
    partitions: list[OffsetFetchResponsePartitions] = []


class OffsetFetchResponseGroup(Struct):
    group_id: GroupId = ""
    topics: list[OffsetFetchResponseTopics] = []
    error_code: ErrorCodeNumber = 0


class OffsetFetchResponse(Message, versions="0-10", flexible="6+"):
    throttle_time_ms: Annotated[Int32, Versions("3+"), IGNORABLE] = 0
    topics: Annotated[list[OffsetFetchResponseTopic], Versions("0-7")] = []
    error_code: Annotated[ErrorCodeNumber, Versions("2-7"), IGNORABLE] = 0
    groups: Annotated[list[OffsetFetchResponseGroup], Versions("8+")] = []
