"""FetchSnapshot (key 59): a follower of the metadata log loads a snapshot piece by piece (KIP-630).

Spoken between brokers and controllers only. A piece may begin and end in the middle of a batch.
"""

from __future__ import annotations

from typing import Annotated

from ..schema import (
    NO_UUID,
    SENDER,
    BrokerId,
    ErrorCodeNumber,
    Int32,
    Int64,
    Message,
    PartitionIndex,
    RecordsPart,
    String,
    Struct,
    Tag,
    TopicName,
    Uint16,
    Uuid,
    Versions,
)


class SnapshotId(Struct):
    end_offset: Int64 = 0
    epoch: Int32 = 0


class PartitionSnapshot(Struct):
    partition: PartitionIndex = 0
    current_leader_epoch: Int32 = 0
    snapshot_id: SnapshotId = SnapshotId()
    position: Int64 = 0
    replica_directory_id: Annotated[Uuid, Versions("1+"), Tag(0)] = NO_UUID


class TopicSnapshot(Struct):
    name: TopicName = ""
    partitions: list[PartitionSnapshot] = []


class FetchSnapshotRequest(Message, versions="0-1", flexible="0+"):
    cluster_id: Annotated[String | None, Tag(0)] = None
    replica_id: Annotated[BrokerId, SENDER] = -1
    max_bytes: Int32 = 0x7FFFFFFF
    topics: list[TopicSnapshot] = []


class LeaderIdAndEpoch(Struct):
    leader_id: BrokerId = 0
    leader_epoch: Int32 = 0


class PartitionSnapshotResponse(Struct):
    index: PartitionIndex = 0
    error_code: ErrorCodeNumber = 0
    snapshot_id: SnapshotId = SnapshotId()
    current_leader: Annotated[LeaderIdAndEpoch, Tag(0)] = LeaderIdAndEpoch()
    size: Int64 = 0
    position: Int64 = 0
    unaligned_records: RecordsPart = b""


class TopicSnapshotResponse(Struct):
    name: TopicName = ""
    partitions: list[PartitionSnapshotResponse] = []


class NodeEndpoint(Struct):
    node_id: Int32 = 0
    host: String = ""
    port: Uint16 = 0


class FetchSnapshotResponse(Message, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = 0
    error_code: ErrorCodeNumber = 0
    topics: list[TopicSnapshotResponse] = []
    node_endpoints: Annotated[list[NodeEndpoint], Versions("1+"), Tag(0)] = []
