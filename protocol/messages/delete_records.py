"""DeleteRecords (key 21): move the start of partitions up to an offset; -1 stands for the high watermark (KIP-107).

v2 is flexible.
"""

from __future__ import annotations

from ..schema import Int16, Int32, Int64, Message, String, Struct


class DeleteRecordsPartition(Struct):
    partition_index: Int32 = 0
    offset: Int64 = 0


class DeleteRecordsTopic(Struct):
    name: String = ""
    partitions: list[DeleteRecordsPartition] = []


class DeleteRecordsRequest(Message, versions="0-2", flexible="2+"):
    topics: list[DeleteRecordsTopic] = []
    timeout_ms: Int32 = 0


class DeleteRecordsPartitionResult(Struct):
    partition_index: Int32 = 0
    low_watermark: Int64 = 0
    error_code: Int16 = 0


class DeleteRecordsTopicResult(Struct):
    name: String = ""
    partitions: list[DeleteRecordsPartitionResult] = []


class DeleteRecordsResponse(Message, versions="0-2", flexible="2+"):
    throttle_time_ms: Int32 = 0
    topics: list[DeleteRecordsTopicResult] = []
