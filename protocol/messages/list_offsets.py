"""ListOffsets (key 2): find the offset that belongs to a timestamp in milliseconds, or to a special one.

Special timestamps: -1 the end of the log, -2 its start, -3 the record with the largest timestamp (v7, KIP-734), -4 the
first offset that is only local (v8, KIP-405), -5 the last offset in tiered storage (v9, KIP-1005), -6 the first one not
there yet (v11, KIP-1023).

- v0 answers with up to `max_num_offsets` start offsets of segments, newest first; v1 with one timestamp and offset.
- v2 has `isolation_level`: with read_committed the end is the last stable offset. v4 adds leader epochs (KIP-320).
- v6 is flexible; v10 has a timeout for lookups in tiered storage (KIP-1075).
"""

from __future__ import annotations

from typing import Annotated

from ..schema import (
    IGNORABLE,
    MINUS_ONE_ON_ERROR,
    SENDER,
    BrokerId,
    ErrorCodeNumber,
    Int8,
    Int32,
    Int64,
    Message,
    PartitionIndex,
    Struct,
    TopicName,
    Versions,
)


class ListOffsetsPartition(Struct):
    partition_index: PartitionIndex = 0
    current_leader_epoch: Annotated[Int32, Versions("4+"), IGNORABLE] = -1
    timestamp: Int64 = 0
    max_num_offsets: Annotated[Int32, Versions("0")] = 1


class ListOffsetsTopic(Struct):
    name: TopicName = ""
    partitions: list[ListOffsetsPartition] = []


class ListOffsetsRequest(Message, versions="0-11", flexible="6+"):
    replica_id: Annotated[BrokerId, SENDER] = 0
    isolation_level: Annotated[Int8, Versions("2+")] = 0
    topics: list[ListOffsetsTopic] = []
    timeout_ms: Annotated[Int32, Versions("10+"), IGNORABLE] = 0


class ListOffsetsPartitionResponse(Struct):
    partition_index: PartitionIndex = 0
    error_code: ErrorCodeNumber = 0
    old_style_offsets: Annotated[list[Int64], Versions("0")] = []
    timestamp: Annotated[Int64, Versions("1+"), MINUS_ONE_ON_ERROR] = -1
    offset: Annotated[Int64, Versions("1+"), MINUS_ONE_ON_ERROR] = -1
    leader_epoch: Annotated[Int32, Versions("4+")] = -1


class ListOffsetsTopicResponse(Struct):
    name: TopicName = ""
    partitions: list[ListOffsetsPartitionResponse] = []


class ListOffsetsResponse(Message, versions="0-11", flexible="6+"):
    throttle_time_ms: Annotated[Int32, Versions("2+"), IGNORABLE] = 0
    topics: list[ListOffsetsTopicResponse] = []
