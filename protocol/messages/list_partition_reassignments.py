"""ListPartitionReassignments (key 46): which partitions are on the move (KIP-455). Null topics mean all."""

from __future__ import annotations

from ..schema import BrokerId, ErrorCodeNumber, Int32, Message, PartitionIndex, String, Struct, TopicName


class ListPartitionReassignmentsTopics(Struct):
    name: TopicName = ""
    partition_indexes: list[PartitionIndex] = []


class ListPartitionReassignmentsRequest(Message, versions="0", flexible="0+"):
    timeout_ms: Int32 = 60000
    topics: list[ListPartitionReassignmentsTopics] | None = None


class OngoingPartitionReassignment(Struct):
    partition_index: PartitionIndex = 0
    replicas: list[BrokerId] = []
    adding_replicas: list[BrokerId] = []
    removing_replicas: list[BrokerId] = []


class OngoingTopicReassignment(Struct):
    name: TopicName = ""
    partitions: list[OngoingPartitionReassignment] = []


class ListPartitionReassignmentsResponse(Message, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = 0
    error_code: ErrorCodeNumber = 0
    error_message: String | None = ""
    topics: list[OngoingTopicReassignment] = []
