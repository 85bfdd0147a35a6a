"""DescribeTopicPartitions (key 75): partitions of topics, page by page, with eligible leader replicas (KIP-966)."""

from __future__ import annotations

from typing import Annotated

from ..schema import IGNORABLE, NO_UUID, Bool, Int16, Int32, Message, String, Struct, Uuid


class TopicRequest(Struct):
    name: String = ""


class Cursor(Struct):
    topic_name: String = ""
    partition_index: Int32 = 0


class DescribeTopicPartitionsRequest(Message, versions="0", flexible="0+"):
    topics: list[TopicRequest] = []
    response_partition_limit: Int32 = 2000
    cursor: Cursor | None = None


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Annotated[Int32, IGNORABLE] = -1
    replica_nodes: list[Int32] = []
    isr_nodes: list[Int32] = []
    eligible_leader_replicas: list[Int32] | None = None
    last_known_elr: list[Int32] | None = None
    offline_replicas: Annotated[list[Int32], IGNORABLE] = []


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: Int16 = 0
    name: String | None = ""
    topic_id: Annotated[Uuid, IGNORABLE] = NO_UUID
    is_internal: Annotated[Bool, IGNORABLE] = False
    partitions: list[DescribeTopicPartitionsResponsePartition] = []
    topic_authorized_operations: Int32 = -0x80000000


class CursorResponse(Struct):
    topic_name: String = ""
    partition_index: Int32 = 0


class DescribeTopicPartitionsResponse(Message, versions="0", flexible="0+"):
    throttle_time_ms: Annotated[Int32, IGNORABLE] = 0
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    next_cursor: CursorResponse | None = None
