"""ReadShareGroupStateSummary (key 87)."""

from __future__ import annotations

from typing import Annotated

from ..schema import IGNORABLE, NO_UUID, Int16, Int32, Int64, Message, String, Struct, Uuid, Versions


class PartitionData(Struct):
    partition: Int32 = 0
    leader_epoch: Int32 = 0


class ReadStateSummaryData(Struct):
    topic_id: Uuid = NO_UUID
    partitions: list[PartitionData] = []


class ReadShareGroupStateSummaryRequest(Message, versions="0-1", flexible="0+"):
    group_id: String = ""
    topics: list[ReadStateSummaryData] = []


class PartitionResult(Struct):
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    state_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0
    delivery_complete_count: Annotated[Int32, Versions("1+"), IGNORABLE] = -1


class ReadStateSummaryResult(Struct):
    topic_id: Uuid = NO_UUID
    partitions: list[PartitionResult] = []


class ReadShareGroupStateSummaryResponse(Message, versions="0-1", flexible="0+"):
    results: list[ReadStateSummaryResult] = []
