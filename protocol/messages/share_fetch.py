"""ShareFetch (key 78): acquire records from share partitions, and acknowledge earlier ones (KIP-932).

v0 was early access in 3.9; v1 counts records, not bytes; v2 adds renewal of locks and strict limits.
"""

from __future__ import annotations

from typing import Annotated

from ..schema import (
    IGNORABLE,
    MENTIONED,
    NO_UUID,
    Bool,
    BrokerId,
    ErrorCodeNumber,
    GroupId,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    Nullable,
    PartitionIndex,
    RecordsPart,
    String,
    Struct,
    TopicId,
    Versions,
)


class AcknowledgementBatch(Struct):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    acknowledge_types: list[Int8] = []


class FetchPartition(Struct):
    partition_index: PartitionIndex = 0
    partition_max_bytes: Annotated[Int32, Versions("0")] = 0
    acknowledgement_batches: list[AcknowledgementBatch] = []


class FetchTopic(Struct):
    topic_id: Annotated[TopicId, IGNORABLE] = NO_UUID
    partitions: list[FetchPartition] = []


class ForgottenTopic(Struct):
    topic_id: Annotated[TopicId, IGNORABLE] = NO_UUID
    partitions: list[PartitionIndex] = []


class ShareFetchRequest(Message, versions="0-2", flexible="0+"):
    group_id: GroupId | None = None
    member_id: String | None = ""
    share_session_epoch: Int32 = 0
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Annotated[Int32, IGNORABLE] = 0x7FFFFFFF
    max_records: Annotated[Int32, Versions("1+")] = 0
    batch_size: Annotated[Int32, Versions("1+")] = 0
    share_acquire_mode: Annotated[Int8, Versions("2+"), IGNORABLE] = 0
    is_renew_ack: Annotated[Bool, Versions("2+")] = False
    topics: list[FetchTopic] = []
    forgotten_topics_data: Annotated[list[ForgottenTopic], MENTIONED] = []


class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class AcquiredRecords(Struct):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_count: Int16 = 0


class PartitionData(Struct):
    partition_index: PartitionIndex = 0
    error_code: ErrorCodeNumber = 0
    error_message: String | None = None
    acknowledge_error_code: ErrorCodeNumber = 0
    acknowledge_error_message: String | None = None
    current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch()
    records: Annotated[RecordsPart | None, Nullable("0")] = None
    acquired_records: list[AcquiredRecords] = []


class ShareFetchableTopicResponse(Struct):
    topic_id: Annotated[TopicId, IGNORABLE] = NO_UUID
    partitions: list[PartitionData] = []


class NodeEndpoint(Struct):
    node_id: BrokerId = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = None


class ShareFetchResponse(Message, versions="0-2", flexible="0+"):
    throttle_time_ms: Annotated[Int32, IGNORABLE] = 0
    error_code: Annotated[ErrorCodeNumber, IGNORABLE] = 0
    error_message: String | None = None
    acquisition_lock_timeout_ms: Annotated[Int32, Versions("1+")] = 0
    responses: list[ShareFetchableTopicResponse] = []
    node_endpoints: list[NodeEndpoint] = []
