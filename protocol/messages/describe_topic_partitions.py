"""DescribeTopicPartitions (key 75): partitions of topics, page by page, with eligible leader replicas (KIP-966)."""

from __future__ import annotations

from typing import Annotated

from ..schema import (
    IGNORABLE,
    MINUS_ONE_ON_ERROR,
    NO_UUID,
    Bool,
    BrokerId,
    ErrorCodeNumber,
    Int32,
    Message,
    PartitionIndex,
    Struct,
    TopicId,
    TopicName,
)


class TopicRequest(Struct):
    name: TopicName = ""


class Cursor(Struct):
    topic_name: TopicName = ""
    partition_index: PartitionIndex = 0


class DescribeTopicPartitionsRequest(Message, versions="0", flexible="0+"):
    topics: list[TopicRequest] = []
    response_partition_limit: Int32 = 2000
    cursor: Cursor | None = None


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: ErrorCodeNumber = 0
    partition_index: PartitionIndex = 0
    leader_id: Annotated[BrokerId, MINUS_ONE_ON_ERROR] = 0
    leader_epoch: Annotated[Int32, IGNORABLE] = -1
    replica_nodes: list[BrokerId] = []
    isr_nodes: list[BrokerId] = []
    eligible_leader_replicas: list[BrokerId] | None = None
    last_known_elr: list[BrokerId] | None = None
    offline_replicas: Annotated[list[BrokerId], IGNORABLE] = []


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: ErrorCodeNumber = 0
    name: TopicName | None = ""
    topic_id: Annotated[TopicId, IGNORABLE] = NO_UUID
    is_internal: Annotated[Bool, IGNORABLE] = False
    partitions: list[DescribeTopicPartitionsResponsePartition] = []
    topic_authorized_operations: Int32 = -0x80000000


class CursorResponse(Struct):
    topic_name: TopicName = ""
    partition_index: PartitionIndex = 0


class DescribeTopicPartitionsResponse(Message, versions="0", flexible="0+"):
    throttle_time_ms: Annotated[Int32, IGNORABLE] = 0
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    next_cursor: CursorResponse | None = None
