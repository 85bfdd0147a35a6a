"""OffsetDelete (key 47): forget a group's offsets for some partitions (KIP-496). This API has no flexible version."""

from __future__ import annotations

from typing import Annotated

from ..schema import (
    IGNORABLE,
    ErrorCodeNumber,
    GroupId,
    Int32,
    Message,
    PartitionIndex,
    Struct,
    TopicName,
)


class OffsetDeleteRequestPartition(Struct):
    partition_index: PartitionIndex = 0


class OffsetDeleteRequestTopic(Struct):
    name: TopicName = ""
    partitions: list[OffsetDeleteRequestPartition] = []


class OffsetDeleteRequest(Message, versions="0"):
    group_id: GroupId = ""
    topics: list[OffsetDeleteRequestTopic] = []


class OffsetDeleteResponsePartition(Struct):
    partition_index: PartitionIndex = 0
    error_code: ErrorCodeNumber = 0


class OffsetDeleteResponseTopic(Struct):
    name: TopicName = ""
    partitions: list[OffsetDeleteResponsePartition] = []


class OffsetDeleteResponse(Message, versions="0"):
    error_code: ErrorCodeNumber = 0
    throttle_time_ms: Annotated[Int32, IGNORABLE] = 0
    topics: list[OffsetDeleteResponseTopic] = []
