"""AlterReplicaLogDirs (key 34): move replicas to another log directory of the same broker (KIP-113). v2 is flexible."""

from __future__ import annotations

from ..schema import Int16, Int32, Message, String, Struct


class AlterReplicaLogDirTopic(Struct):
    name: String = ""
    partitions: list[Int32] = []


class AlterReplicaLogDir(Struct):
    path: String = ""
    topics: list[AlterReplicaLogDirTopic] = []


class AlterReplicaLogDirsRequest(Message, versions="0-2", flexible="2+"):
    dirs: list[AlterReplicaLogDir] = []


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: String = ""
    partitions: list[AlterReplicaLogDirPartitionResult] = []


class AlterReplicaLogDirsResponse(Message, versions="0-2", flexible="2+"):
    throttle_time_ms: Int32 = 0
    results: list[AlterReplicaLogDirTopicResult] = []
