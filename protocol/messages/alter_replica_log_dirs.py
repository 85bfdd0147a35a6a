"""AlterReplicaLogDirs (key 34): move replicas to another log directory of the same broker (KIP-113). v2 is flexible."""

from __future__ import annotations

from ..schema import ErrorCodeNumber, Int32, Message, PartitionIndex, String, Struct, TopicName


class AlterReplicaLogDirTopic(Struct):
    name: TopicName = ""
    partitions: list[PartitionIndex] = []


class AlterReplicaLogDir(Struct):
    path: String = ""
    topics: list[AlterReplicaLogDirTopic] = []


class AlterReplicaLogDirsRequest(Message, versions="0-2", flexible="2+"):
    dirs: list[AlterReplicaLogDir] = []


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: PartitionIndex = 0
    error_code: ErrorCodeNumber = 0


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: TopicName = ""
    partitions: list[AlterReplicaLogDirPartitionResult] = []


class AlterReplicaLogDirsResponse(Message, versions="0-2", flexible="2+"):
    throttle_time_ms: Int32 = 0
    results: list[AlterReplicaLogDirTopicResult] = []
