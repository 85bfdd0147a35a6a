"""OffsetForLeaderEpoch (key 23): where a leader epoch ends in the log, so that a reader notices a truncation (KIP-101).

v1 answers with the epoch as well (KIP-279), v2 fences by the current epoch (KIP-320), v3 tells replicas from consumers,
v4 is flexible.
"""

from __future__ import annotations

from typing import Annotated

from ..schema import (
    IGNORABLE,
    MINUS_ONE_ON_ERROR,
    SENDER,
    BrokerId,
    ErrorCodeNumber,
    Int32,
    Int64,
    Message,
    PartitionIndex,
    Struct,
    TopicName,
    Versions,
)


class OffsetForLeaderPartition(Struct):
    partition: PartitionIndex = 0
    current_leader_epoch: Annotated[Int32, Versions("2+"), IGNORABLE] = -1
    leader_epoch: Int32 = 0


class OffsetForLeaderTopic(Struct):
    topic: TopicName = ""
    partitions: list[OffsetForLeaderPartition] = []


class OffsetForLeaderEpochRequest(Message, versions="0-4", flexible="4+"):
    replica_id: Annotated[BrokerId, Versions("3+"), IGNORABLE, SENDER] = -2
    topics: list[OffsetForLeaderTopic] = []


class EpochEndOffset(Struct):
    error_code: ErrorCodeNumber = 0
    partition: PartitionIndex = 0
    leader_epoch: Annotated[Int32, Versions("1+"), IGNORABLE] = -1
    end_offset: Annotated[Int64, MINUS_ONE_ON_ERROR] = -1


class OffsetForLeaderTopicResult(Struct):
    topic: TopicName = ""
    partitions: list[EpochEndOffset] = []


class OffsetForLeaderEpochResponse(Message, versions="0-4", flexible="4+"):
    throttle_time_ms: Annotated[Int32, Versions("2+"), IGNORABLE] = 0
    topics: list[OffsetForLeaderTopicResult] = []
