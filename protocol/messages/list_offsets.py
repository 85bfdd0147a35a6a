"""ListOffsets (key 2)."""

from __future__ import annotations

from typing import Annotated

from ..schema import IGNORABLE, Int8, Int16, Int32, Int64, Message, String, Struct, Versions


class ListOffsetsPartition(Struct):
    partition_index: Int32 = 0
    current_leader_epoch: Annotated[Int32, Versions("4+"), IGNORABLE] = -1
    timestamp: Int64 = 0
    max_num_offsets: Annotated[Int32, Versions("0")] = 1


class ListOffsetsTopic(Struct):
    name: String = ""
    partitions: list[ListOffsetsPartition] = []


class ListOffsetsRequest(Message, versions="0-11", flexible="6+"):
    replica_id: Int32 = 0
    isolation_level: Annotated[Int8, Versions("2+")] = 0
    topics: list[ListOffsetsTopic] = []
    timeout_ms: Annotated[Int32, Versions("10+"), IGNORABLE] = 0


class ListOffsetsPartitionResponse(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    old_style_offsets: Annotated[list[Int64], Versions("0")] = []
    timestamp: Annotated[Int64, Versions("1+")] = -1
    offset: Annotated[Int64, Versions("1+")] = -1
    leader_epoch: Annotated[Int32, Versions("4+")] = -1


class ListOffsetsTopicResponse(Struct):
    name: String = ""
    partitions: list[ListOffsetsPartitionResponse] = []


class ListOffsetsResponse(Message, versions="0-11", flexible="6+"):
    throttle_time_ms: Annotated[Int32, Versions("2+"), IGNORABLE] = 0
    topics: list[ListOffsetsTopicResponse] = []
