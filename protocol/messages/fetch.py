"""Fetch (key 1): read record batches from partitions, waiting up to `max_wait_ms` until there are `min_bytes` of them.

- v0 and v1 are answered in record format 0, v2 and v3 in format 1, v4 and later as stored, format 2 at the newest.
- v3 bounds the whole response by `max_bytes`; partitions are filled in the order of the request (KIP-74).
- v4 has `isolation_level` 0 (read_uncommitted) or 1 (read_committed) and lists aborted transactions (KIP-98).
- v5 tells the log start offset; v7 has incremental fetch sessions (KIP-227); v9 fences by leader epoch (KIP-320).
- v10 allows zstd (KIP-110); v11 lets a consumer read from a near follower (KIP-392); v12 is flexible.
- v13 names topics by id (KIP-516); v15 moves the replica's identity into a tagged field (KIP-903).
- v16 points to the new leader (KIP-951); v17 and v18 matter to replicas only (KIP-853, KIP-1166).

`gregor_as_stored` is not Kafka's: a Gregor broker then brings v0 and v1 batches into no newer format, as Kafka never
does. With `gregor_with_tags` it tells the enriched tags of the batches too, in `gregor_batch_tags` of each partition
(`records/tagged_batches.py`). With `gregor_with_tag_runs` followers and mirrors get what the index has, to keep it
beside their copies (`records/tag_runs.py`). Other brokers skip these fields, and clients that do not ask get no byte
more.

On the wire `high_watermark` is -1 where a partition has failed. `aborted_transactions` is null for read_uncommitted.
"""

from __future__ import annotations

from typing import Annotated

from ..schema import (
    IGNORABLE,
    MENTIONED,
    MINUS_ONE_ON_ERROR,
    NO_UUID,
    SENDER,
    Bool,
    BrokerId,
    Bytes,
    ErrorCodeNumber,
    Int8,
    Int32,
    Int64,
    Message,
    PartitionIndex,
    ProducerId,
    RecordsPart,
    String,
    Struct,
    Tag,
    TopicId,
    TopicName,
    Uuid,
    Versions,
)


class ReplicaState(Struct):
    replica_id: Annotated[BrokerId, SENDER] = -1
    replica_epoch: Int64 = -1


class FetchPartition(Struct):
    partition: PartitionIndex = 0
    current_leader_epoch: Annotated[Int32, Versions("9+"), IGNORABLE] = -1
    fetch_offset: Int64 = 0
    last_fetched_epoch: Annotated[Int32, Versions("12+")] = -1
    log_start_offset: Annotated[Int64, Versions("5+"), IGNORABLE] = -1
    partition_max_bytes: Int32 = 0
    replica_directory_id: Annotated[Uuid, Versions("17+"), Tag(0), IGNORABLE] = NO_UUID
    high_watermark: Annotated[Int64, Versions("18+"), Tag(1), IGNORABLE] = 0x7FFFFFFFFFFFFFFF


class FetchTopic(Struct):
    topic: Annotated[TopicName, Versions("0-12"), IGNORABLE] = ""
    topic_id: Annotated[TopicId, Versions("13+"), IGNORABLE] = NO_UUID
    partitions: list[FetchPartition] = []


class ForgottenTopic(Struct):
    topic: Annotated[TopicName, Versions("7-12"), IGNORABLE] = ""
    topic_id: Annotated[TopicId, Versions("13+"), IGNORABLE] = NO_UUID
    partitions: list[PartitionIndex] = []


class FetchRequest(Message, versions="0-18", flexible="12+"):
    cluster_id: Annotated[String | None, Versions("12+"), Tag(0), IGNORABLE] = None
    replica_id: Annotated[BrokerId, Versions("0-14"), SENDER] = -1
    replica_state: Annotated[ReplicaState, Versions("15+"), Tag(1)] = ReplicaState()
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Annotated[Int32, Versions("3+"), IGNORABLE] = 0x7FFFFFFF
    isolation_level: Annotated[Int8, Versions("4+"), IGNORABLE] = 0
    session_id: Annotated[Int32, Versions("7+"), IGNORABLE] = 0
    session_epoch: Annotated[Int32, Versions("7+"), IGNORABLE] = -1
    topics: list[FetchTopic] = []
    forgotten_topics_data: Annotated[list[ForgottenTopic], Versions("7+"), MENTIONED] = []
    rack_id: Annotated[String, Versions("11+"), IGNORABLE] = ""
    gregor_as_stored: Annotated[Bool, Versions("12+"), Tag(18258), IGNORABLE] = False
    gregor_with_tags: Annotated[Bool, Versions("12+"), Tag(18259), IGNORABLE] = False
    gregor_with_tag_runs: Annotated[Bool, Versions("12+"), Tag(18260), IGNORABLE] = False


class EpochEndOffset(Struct):
    epoch: Int32 = -1
    end_offset: Int64 = -1


class LeaderIdAndEpoch(Struct):
    leader_id: BrokerId = -1
    leader_epoch: Int32 = -1


class SnapshotId(Struct):
    end_offset: Int64 = -1
    epoch: Int32 = -1


class AbortedTransaction(Struct):
    producer_id: ProducerId = 0
    first_offset: Int64 = 0


class PartitionData(Struct):
    partition_index: PartitionIndex = 0
    error_code: ErrorCodeNumber = 0
    high_watermark: Annotated[Int64, MINUS_ONE_ON_ERROR] = 0
    last_stable_offset: Annotated[Int64, Versions("4+"), IGNORABLE, MINUS_ONE_ON_ERROR] = -1
    log_start_offset: Annotated[Int64, Versions("5+"), IGNORABLE, MINUS_ONE_ON_ERROR] = -1
    diverging_epoch: Annotated[EpochEndOffset, Versions("12+"), Tag(0)] = EpochEndOffset()
    current_leader: Annotated[LeaderIdAndEpoch, Versions("12+"), Tag(1)] = LeaderIdAndEpoch()
    snapshot_id: Annotated[SnapshotId, Versions("12+"), Tag(2)] = SnapshotId()
    aborted_transactions: Annotated[list[AbortedTransaction] | None, Versions("4+"), IGNORABLE] = []
    preferred_read_replica: Annotated[BrokerId, Versions("11+")] = -1
    records: RecordsPart | None = None
    gregor_batch_tags: Annotated[Bytes | None, Versions("12+"), Tag(18259), IGNORABLE] = None
    gregor_tag_runs: Annotated[Bytes | None, Versions("12+"), Tag(18260), IGNORABLE] = None


class FetchableTopicResponse(Struct):
    topic: Annotated[TopicName, Versions("0-12"), IGNORABLE] = ""
    topic_id: Annotated[TopicId, Versions("13+"), IGNORABLE] = NO_UUID
    partitions: list[PartitionData] = []


class NodeEndpoint(Struct):
    node_id: BrokerId = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = None


class FetchResponse(Message, versions="0-18", flexible="12+"):
    throttle_time_ms: Annotated[Int32, Versions("1+"), IGNORABLE] = 0
    error_code: Annotated[ErrorCodeNumber, Versions("7+"), IGNORABLE] = 0
    session_id: Annotated[Int32, Versions("7+")] = 0
    responses: list[FetchableTopicResponse] = []
    node_endpoints: Annotated[list[NodeEndpoint], Versions("16+"), Tag(0)] = []
