"""ElectLeaders (key 43): elect the preferred leaders of partitions (KIP-183).

v1 can also elect a leader out of sync, `election_type` 1 (KIP-460); v2 is flexible. Null partitions mean all of them.
"""

from __future__ import annotations

from typing import Annotated

from ..schema import ErrorCodeNumber, Int8, Int32, Message, PartitionIndex, String, Struct, TopicName, Versions


class TopicPartitions(Struct):
    topic: TopicName = ""
    partitions: list[PartitionIndex] = []


class ElectLeadersRequest(Message, versions="0-2", flexible="2+"):
    election_type: Annotated[Int8, Versions("1+")] = 0
    topic_partitions: list[TopicPartitions] | None = []
    timeout_ms: Int32 = 60000


class PartitionResult(Struct):
    partition_id: PartitionIndex = 0
    error_code: ErrorCodeNumber = 0
    error_message: String | None = ""


class ReplicaElectionResult(Struct):
    topic: TopicName = ""
    partition_result: list[PartitionResult] = []


class ElectLeadersResponse(Message, versions="0-2", flexible="2+"):
    throttle_time_ms: Int32 = 0
    error_code: Annotated[ErrorCodeNumber, Versions("1+")] = 0
    replica_election_results: list[ReplicaElectionResult] = []
