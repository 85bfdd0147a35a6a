"""DescribeLogDirs (key 35): size in bytes of every replica in every log directory of the broker (KIP-113).

v2 is flexible, v3 can fail as a whole, v4 tells the size of the volume (KIP-827), v5 whether it takes new replicas.
"""

from __future__ import annotations

from typing import Annotated

from ..schema import (
    IGNORABLE,
    Bool,
    ErrorCodeNumber,
    Int32,
    Int64,
    Message,
    PartitionIndex,
    String,
    Struct,
    TopicName,
    Versions,
)


class DescribableLogDirTopic(Struct):
    topic: TopicName = ""
    partitions: list[PartitionIndex] = []


class DescribeLogDirsRequest(Message, versions="0-5", flexible="2+"):
    topics: list[DescribableLogDirTopic] | None = []


class DescribeLogDirsPartition(Struct):
    partition_index: PartitionIndex = 0
    partition_size: Int64 = 0
    offset_lag: Int64 = 0
    is_future_key: Bool = False


class DescribeLogDirsTopic(Struct):
    name: TopicName = ""
    partitions: list[DescribeLogDirsPartition] = []


class DescribeLogDirsResult(Struct):
    error_code: ErrorCodeNumber = 0
    log_dir: String = ""
    topics: list[DescribeLogDirsTopic] = []
    total_bytes: Annotated[Int64, Versions("4+"), IGNORABLE] = -1
    usable_bytes: Annotated[Int64, Versions("4+"), IGNORABLE] = -1
    is_cordoned: Annotated[Bool, Versions("5+"), IGNORABLE] = False


class DescribeLogDirsResponse(Message, versions="0-5", flexible="2+"):
    throttle_time_ms: Int32 = 0
    error_code: Annotated[ErrorCodeNumber, Versions("3+"), IGNORABLE] = 0
    results: list[DescribeLogDirsResult] = []
