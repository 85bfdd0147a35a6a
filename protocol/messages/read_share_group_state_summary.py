"""ReadShareGroupStateSummary (key 87): the start offsets of share partitions (KIP-932). Spoken between brokers only.

Kafka 4 changed v0, which 3.9 had marked as unstable; this is 3.9's.
"""

from __future__ import annotations

from ..schema import (
    NO_UUID,
    ErrorCodeNumber,
    Int32,
    Int64,
    Message,
    PartitionIndex,
    String,
    Struct,
    TopicId,
)


class PartitionData(Struct):
    partition: PartitionIndex = 0
    leader_epoch: Int32 = 0


class ReadStateSummaryData(Struct):
    topic_id: TopicId = NO_UUID
    partitions: list[PartitionData] = []


class ReadShareGroupStateSummaryRequest(Message, versions="0", flexible="0+"):
    group_id: String = ""
    topics: list[ReadStateSummaryData] = []


class PartitionResult(Struct):
    partition: PartitionIndex = 0
    error_code: ErrorCodeNumber = 0
    error_message: String | None = None
    state_epoch: Int32 = 0
    start_offset: Int64 = 0


class ReadStateSummaryResult(Struct):
    topic_id: TopicId = NO_UUID
    partitions: list[PartitionResult] = []


class ReadShareGroupStateSummaryResponse(Message, versions="0", flexible="0+"):
    results: list[ReadStateSummaryResult] = []
