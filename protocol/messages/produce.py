"""Produce (key 0): append record batches to partitions.

- v0 and v1 carry records of format 0, v2 those of format 1 (with timestamps, KIP-32), v3 and later format 2 (KIP-98).
- v1 answers with a throttle time; v3 adds the transactional id; v7 allows zstd (KIP-110).
- v8 says which records of a batch are at fault (KIP-467); v9 is flexible.
- v10 points to the new leader after NOT_LEADER_OR_FOLLOWER (KIP-951); v12 takes part in transactions of KIP-890.
- v13 names topics by id (KIP-516).

With `acks` 0 there is no response at all; -1 waits for all in-sync replicas, at most `timeout_ms`.
"""

from __future__ import annotations

from typing import Annotated

from ..schema import (
    IGNORABLE,
    MINUS_ONE_ON_ERROR,
    NO_UUID,
    BrokerId,
    ErrorCodeNumber,
    Int16,
    Int32,
    Int64,
    Message,
    PartitionIndex,
    Records,
    String,
    Struct,
    Tag,
    TopicId,
    TopicName,
    TransactionalId,
    Versions,
)


class PartitionProduceData(Struct):
    index: PartitionIndex = 0
    records: Records | None = None


class TopicProduceData(Struct):
    name: Annotated[TopicName, Versions("0-12"), IGNORABLE] = ""
    topic_id: Annotated[TopicId, Versions("13+"), IGNORABLE] = NO_UUID
    partition_data: list[PartitionProduceData] = []


class ProduceRequest(Message, versions="0-13", flexible="9+"):
    transactional_id: Annotated[TransactionalId | None, Versions("3+")] = None
    acks: Int16 = 0
    timeout_ms: Int32 = 0
    topic_data: list[TopicProduceData] = []


class BatchIndexAndErrorMessage(Struct):
    batch_index: Int32 = 0
    batch_index_error_message: String | None = None


class LeaderIdAndEpoch(Struct):
    leader_id: BrokerId = -1
    leader_epoch: Int32 = -1


class PartitionProduceResponse(Struct):
    index: PartitionIndex = 0
    error_code: ErrorCodeNumber = 0
    base_offset: Annotated[Int64, MINUS_ONE_ON_ERROR] = 0
    log_append_time_ms: Annotated[Int64, Versions("2+"), IGNORABLE, MINUS_ONE_ON_ERROR] = -1
    log_start_offset: Annotated[Int64, Versions("5+"), IGNORABLE, MINUS_ONE_ON_ERROR] = -1
    record_errors: Annotated[list[BatchIndexAndErrorMessage], Versions("8+"), IGNORABLE] = []
    error_message: Annotated[String | None, Versions("8+"), IGNORABLE] = None
    current_leader: Annotated[LeaderIdAndEpoch, Versions("10+"), Tag(0)] = LeaderIdAndEpoch()


class TopicProduceResponse(Struct):
    name: Annotated[TopicName, Versions("0-12"), IGNORABLE] = ""
    topic_id: Annotated[TopicId, Versions("13+"), IGNORABLE] = NO_UUID
    partition_responses: list[PartitionProduceResponse] = []


class NodeEndpoint(Struct):
    node_id: BrokerId = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = None


class ProduceResponse(Message, versions="0-13", flexible="9+"):
    responses: list[TopicProduceResponse] = []
    throttle_time_ms: Annotated[Int32, Versions("1+"), IGNORABLE] = 0
    node_endpoints: Annotated[list[NodeEndpoint], Versions("10+"), Tag(0)] = []
