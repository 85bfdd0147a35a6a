"""The controller's Fetch and FetchSnapshot of the metadata log, for its followers (KIP-595, KIP-630)."""

from __future__ import annotations

import trio

from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.internal_topics import CLUSTER_METADATA
from ...protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
    SnapshotId,
)
from ...protocol.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    PartitionSnapshot,
    PartitionSnapshotResponse,
    TopicSnapshot,
    TopicSnapshotResponse,
)
from ..api.contract import RequestContext
from ..controller.controller import Controller
from ..metadata import snapshots
from ..metadata.store import METADATA_TOPIC_ID, MetadataStore
from ..replicas.fetching.sessions import sender_of

FIRST_VERSION_BY_ID = 13
MOST_BYTES = 8 * 1024 * 1024
NO_EPOCH = -1


async def handle_fetch_metadata(request: FetchRequest, context: RequestContext) -> FetchResponse:
    """Return the next records of the metadata log to a follower, waiting for new records if there are none."""
    metadata, controller = context.services.metadata, context.services.node.controller_here
    if request.cluster_id not in (None, metadata.cluster_id):
        return FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    wanted = _metadata_partition(request, context.api_version)
    if wanted is None:
        return FetchResponse(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    replica_id = sender_of(request, context.api_version).replica_id
    answer = _answer(wanted, replica_id, metadata, controller)
    if not answer.records and answer.error_code == 0 and _follows(answer):
        with trio.move_on_after(max(request.max_wait_ms, 0) / 1000):
            await metadata.wait_for_growth()
            answer = _answer(wanted, replica_id, metadata, controller)
    topic = FetchableTopicResponse(topic=CLUSTER_METADATA, topic_id=METADATA_TOPIC_ID, partitions=[answer])
    return FetchResponse(responses=[topic])


def _metadata_partition(request: FetchRequest, version: int) -> FetchPartition | None:
    is_by_id = version >= FIRST_VERSION_BY_ID
    for topic in request.topics:
        if topic.topic_id == METADATA_TOPIC_ID if is_by_id else topic.topic == CLUSTER_METADATA:
            return next((partition for partition in topic.partitions if partition.partition == 0), None)
    return None


def _follows(answer: PartitionData) -> bool:
    """Return whether the follower's log is a prefix of this log."""
    return answer.snapshot_id.end_offset < 0 and answer.diverging_epoch.end_offset < 0


def _answer(wanted: FetchPartition, replica_id: int, metadata: MetadataStore, controller: Controller) -> PartitionData:
    log = metadata.log
    answer = PartitionData(
        high_watermark=log.end_offset,
        last_stable_offset=log.end_offset,
        log_start_offset=log.start_offset,
        current_leader=LeaderIdAndEpoch(leader_id=metadata.node_id, leader_epoch=log.epoch),
        aborted_transactions=None,
        records=b"",
    )
    offset, epoch = wanted.fetch_offset, wanted.last_fetched_epoch
    snapshot = log.newest_snapshot()
    if offset < log.start_offset and snapshot is not None:
        answer.snapshot_id = SnapshotId(end_offset=snapshot.end_offset, epoch=snapshot.epoch)
        return answer
    if not log.start_offset <= offset <= log.end_offset:
        end = min(max(offset, log.start_offset), log.end_offset)
        answer.diverging_epoch = EpochEndOffset(epoch=log.last_epoch, end_offset=end)
        return answer
    if epoch != NO_EPOCH and not (snapshot is not None and (offset, epoch) == snapshot):
        known_epoch, end = log.end_offset_for_epoch(epoch)
        if known_epoch != epoch or end < offset:
            answer.diverging_epoch = EpochEndOffset(epoch=known_epoch, end_offset=max(end, log.start_offset))
            return answer
    controller.has_read(replica_id, offset)
    if offset < log.end_offset:
        answer.records = log.read(offset, min(max(wanted.partition_max_bytes, 1), MOST_BYTES))
    return answer


def handle_fetch_snapshot(request: FetchSnapshotRequest, context: RequestContext) -> FetchSnapshotResponse:
    """Return a chunk of a snapshot to a follower."""
    metadata = context.services.metadata
    if request.cluster_id not in (None, metadata.cluster_id):
        return FetchSnapshotResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    size_bytes = min(max(request.max_bytes, 1), MOST_BYTES)
    return FetchSnapshotResponse(
        topics=[
            TopicSnapshotResponse(
                name=topic.name,
                partitions=[_piece(topic, wanted, size_bytes, metadata) for wanted in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _piece(
    topic: TopicSnapshot, wanted: PartitionSnapshot, size_bytes: int, metadata: MetadataStore
) -> PartitionSnapshotResponse:
    answer = PartitionSnapshotResponse(
        index=wanted.partition, snapshot_id=wanted.snapshot_id, position=wanted.position, unaligned_records=b""
    )
    if (topic.name, wanted.partition) != (CLUSTER_METADATA, 0):
        answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return answer
    snapshot = snapshots.SnapshotId(wanted.snapshot_id.end_offset, wanted.snapshot_id.epoch)
    try:
        data, answer.size = metadata.log.read_snapshot(snapshot, max(wanted.position, 0), size_bytes)
    except BrokerError as error:
        answer.error_code = error.code
        return answer
    if not 0 <= wanted.position < max(answer.size, 1):
        answer.error_code = ErrorCode.POSITION_OUT_OF_RANGE
        return answer
    answer.unaligned_records = data
    return answer
