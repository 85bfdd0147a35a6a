"""DescribeProducers (key 61): which producers a partition remembers, their sequences and transactions (KIP-664)."""

from __future__ import annotations

from ..schema import (
    ErrorCodeNumber,
    Int32,
    Int64,
    Message,
    PartitionIndex,
    ProducerId,
    String,
    Struct,
    TopicName,
)


class TopicRequest(Struct):
    name: TopicName = ""
    partition_indexes: list[PartitionIndex] = []


class DescribeProducersRequest(Message, versions="0", flexible="0+"):
    topics: list[TopicRequest] = []


class ProducerState(Struct):
    producer_id: ProducerId = 0
    producer_epoch: Int32 = 0
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32 = 0
    current_txn_start_offset: Int64 = -1


class PartitionResponse(Struct):
    partition_index: PartitionIndex = 0
    error_code: ErrorCodeNumber = 0
    error_message: String | None = None
    active_producers: list[ProducerState] = []


class TopicResponse(Struct):
    name: TopicName = ""
    partitions: list[PartitionResponse] = []


class DescribeProducersResponse(Message, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = 0
    topics: list[TopicResponse] = []
