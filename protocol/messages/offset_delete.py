"""OffsetDelete (key 47): forget a group's offsets for some partitions (KIP-496). This API has no flexible version."""

from __future__ import annotations

from typing import Annotated

from ..schema import IGNORABLE, Int16, Int32, Message, String, Struct


class OffsetDeleteRequestPartition(Struct):
    partition_index: Int32 = 0


class OffsetDeleteRequestTopic(Struct):
    name: String = ""
    partitions: list[OffsetDeleteRequestPartition] = []


class OffsetDeleteRequest(Message, versions="0"):
    group_id: String = ""
    topics: list[OffsetDeleteRequestTopic] = []


class OffsetDeleteResponsePartition(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetDeleteResponseTopic(Struct):
    name: String = ""
    partitions: list[OffsetDeleteResponsePartition] = []


class OffsetDeleteResponse(Message, versions="0"):
    error_code: Int16 = 0
    throttle_time_ms: Annotated[Int32, IGNORABLE] = 0
    topics: list[OffsetDeleteResponseTopic] = []
