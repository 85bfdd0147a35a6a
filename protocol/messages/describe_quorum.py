"""DescribeQuorum (key 55): leader, voters and observers of the metadata quorum, and how far each has got (KIP-642).

v1 adds times of the last fetch (KIP-836), v2 directory ids and endpoints (KIP-853).
"""

from __future__ import annotations

from typing import Annotated

from ..schema import (
    IGNORABLE,
    MINUS_ONE_ON_ERROR,
    NO_UUID,
    BrokerId,
    ErrorCodeNumber,
    Int32,
    Int64,
    Message,
    PartitionIndex,
    String,
    Struct,
    TopicName,
    Uint16,
    Uuid,
    Versions,
)


class PartitionData(Struct):
    partition_index: PartitionIndex = 0


class TopicData(Struct):
    topic_name: TopicName = ""
    partitions: list[PartitionData] = []


class DescribeQuorumRequest(Message, versions="0-2", flexible="0+"):
    topics: list[TopicData] = []


class ReplicaState(Struct):
    replica_id: BrokerId = 0
    replica_directory_id: Annotated[Uuid, Versions("2+")] = NO_UUID
    log_end_offset: Int64 = 0
    last_fetch_timestamp: Annotated[Int64, Versions("1+"), IGNORABLE] = -1
    last_caught_up_timestamp: Annotated[Int64, Versions("1+"), IGNORABLE] = -1


class PartitionDataResponse(Struct):
    partition_index: PartitionIndex = 0
    error_code: ErrorCodeNumber = 0
    error_message: Annotated[String | None, Versions("2+"), IGNORABLE] = ""
    leader_id: Annotated[BrokerId, MINUS_ONE_ON_ERROR] = 0
    leader_epoch: Int32 = 0
    high_watermark: Annotated[Int64, MINUS_ONE_ON_ERROR] = 0
    current_voters: list[ReplicaState] = []
    observers: list[ReplicaState] = []


class TopicDataResponse(Struct):
    topic_name: TopicName = ""
    partitions: list[PartitionDataResponse] = []


class Listener(Struct):
    name: String = ""
    host: String = ""
    port: Uint16 = 0


class Node(Struct):
    node_id: BrokerId = 0
    listeners: list[Listener] = []


class DescribeQuorumResponse(Message, versions="0-2", flexible="0+"):
    error_code: ErrorCodeNumber = 0
    error_message: Annotated[String | None, Versions("2+"), IGNORABLE] = ""
    topics: list[TopicDataResponse] = []
    nodes: Annotated[list[Node], Versions("2+")] = []
