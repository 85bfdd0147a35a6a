"""AppendNumbered (key 18259): write batches that have their offsets already, so that a mirror keeps its source's.

Not one of Kafka's APIs (see `GregorApiKey`). For each partition the broker leaves out the batches that its log has
already and appends the others as they are, gaps included, with its own leader epoch; an empty log begins where the
first of them does. `log_end_offset` says how far the log goes now, also with an error. Control batches and batches of
transactions are refused (INVALID_RECORD), as are offsets that overlap what is there (OFFSET_OUT_OF_RANGE).
`tag_runs` are the source's tags (`records/tag_runs.py`): the broker keeps the receipt times, and computes
the other tags itself.
"""

from __future__ import annotations

from typing import Annotated

from ..schema import (
    IGNORABLE,
    MINUS_ONE_ON_ERROR,
    Bytes,
    ErrorCodeNumber,
    Int32,
    Int64,
    Message,
    PartitionIndex,
    Records,
    String,
    Struct,
    Tag,
    TopicName,
    Versions,
)


class AppendNumberedPartition(Struct):
    index: PartitionIndex = 0
    records: Records | None = None
    tag_runs: Annotated[Bytes | None, Versions("0+"), Tag(0), IGNORABLE] = None


class AppendNumberedTopic(Struct):
    name: TopicName = ""
    partitions: list[AppendNumberedPartition] = []


class AppendNumberedRequest(Message, versions="0", flexible="0+"):
    topics: list[AppendNumberedTopic] = []


class AppendNumberedPartitionResponse(Struct):
    index: PartitionIndex = 0
    error_code: ErrorCodeNumber = 0
    error_message: String | None = None
    log_start_offset: Annotated[Int64, MINUS_ONE_ON_ERROR] = -1
    log_end_offset: Int64 = -1


class AppendNumberedTopicResponse(Struct):
    name: TopicName = ""
    partitions: list[AppendNumberedPartitionResponse] = []


class AppendNumberedResponse(Message, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = 0
    topics: list[AppendNumberedTopicResponse] = []
