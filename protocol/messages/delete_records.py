"""DeleteRecords (key 21): move the start of partitions up to an offset; -1 stands for the high watermark (KIP-107).

v2 is flexible.
"""

from __future__ import annotations

from typing import Annotated

from ..schema import MINUS_ONE_ON_ERROR, ErrorCodeNumber, Int32, Int64, Message, PartitionIndex, Struct, TopicName


class DeleteRecordsPartition(Struct):
    partition_index: PartitionIndex = 0
    offset: Int64 = 0


class DeleteRecordsTopic(Struct):
    name: TopicName = ""
    partitions: list[DeleteRecordsPartition] = []


class DeleteRecordsRequest(Message, versions="0-2", flexible="2+"):
    topics: list[DeleteRecordsTopic] = []
    timeout_ms: Int32 = 0


class DeleteRecordsPartitionResult(Struct):
    partition_index: PartitionIndex = 0
    low_watermark: Annotated[Int64, MINUS_ONE_ON_ERROR] = 0
    error_code: ErrorCodeNumber = 0


class DeleteRecordsTopicResult(Struct):
    name: TopicName = ""
    partitions: list[DeleteRecordsPartitionResult] = []


class DeleteRecordsResponse(Message, versions="0-2", flexible="2+"):
    throttle_time_ms: Int32 = 0
    topics: list[DeleteRecordsTopicResult] = []
