"""Follows the controller's metadata log: a broker fetches it as a partition like any other (KIP-595, KIP-630).

What was fetched is appended to this node's own copy first, so a broker that starts knows what it knew.
"""

from __future__ import annotations

import logging

import trio

from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.internal_topics import CLUSTER_METADATA
from ...protocol.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from ...protocol.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    PartitionSnapshot,
    PartitionSnapshotResponse,
    TopicSnapshot,
)
from ...protocol.messages.fetch_snapshot import SnapshotId as WireSnapshotId
from ..metadata.snapshots import SnapshotId
from ..metadata.store import METADATA_TOPIC_ID, MetadataStore
from .peers import RemoteController

logger = logging.getLogger(__name__)

FETCH_VERSION = 17
MAX_WAIT_MS = 500
"""How long the controller may wait for news (Kafka `KafkaRaftClient.MAX_FETCH_WAIT_MS`)."""
MAX_BYTES = 8 * 1024 * 1024
LARGEST_SNAPSHOT_BYTES = 1 << 30
LONGEST_BACKOFF_S = 1.0


class MetadataFollower:
    """Keeps a metadata store in step with the controller's."""

    def __init__(
        self, metadata: MetadataStore, controller: RemoteController, *, timeout_s: float, retry_backoff_s: float
    ) -> None:
        self._metadata = metadata
        self._controller = controller
        self._timeout_s = timeout_s + MAX_WAIT_MS / 1000
        self._retry_backoff_s = retry_backoff_s
        self._is_reachable = True

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow until cancelled; started once everything is known that the controller knew when it was asked first.

        Raises BrokerError INCONSISTENT_CLUSTER_ID if the controller is that of another cluster.
        """
        is_started = False
        pause_s = self._retry_backoff_s
        while True:
            try:
                is_caught_up = await self._follow_once()
            except BrokerError as error:
                if error.code is ErrorCode.INCONSISTENT_CLUSTER_ID and not is_started:
                    raise
                self._lost(error)
                await trio.sleep(pause_s)
                pause_s = min(pause_s * 2, LONGEST_BACKOFF_S)
                continue
            self._found()
            pause_s = self._retry_backoff_s
            if is_caught_up and not is_started:
                is_started = True
                task_status.started()

    def _lost(self, error: BrokerError) -> None:
        if self._is_reachable:
            self._is_reachable = False
            logger.warning("cannot follow the controller, going on with what is known: %s", error.message or error.code)

    def _found(self) -> None:
        if not self._is_reachable:
            self._is_reachable = True
            logger.info("following the controller again, from offset %d", self._metadata.end_offset)

    async def _follow_once(self) -> bool:
        """Ask once and act on the answer; returns whether all is known that the controller knows."""
        metadata = self._metadata
        answer = await self._fetch()
        if answer.error_code:
            raise BrokerError(ErrorCode(answer.error_code))
        if answer.snapshot_id.end_offset >= 0:
            await self._load_snapshot(SnapshotId(answer.snapshot_id.end_offset, answer.snapshot_id.epoch))
        elif answer.diverging_epoch.end_offset >= 0:
            self._truncate(answer.diverging_epoch)
        elif answer.records:
            metadata.take(bytes(answer.records))  # type: ignore[arg-type]  # decoded records are a memoryview
        metadata.controller_id = answer.current_leader.leader_id
        return metadata.end_offset >= answer.high_watermark

    async def _fetch(self) -> PartitionData:
        log = self._metadata.log
        partition = FetchPartition(
            fetch_offset=log.end_offset, last_fetched_epoch=log.last_epoch, partition_max_bytes=MAX_BYTES
        )
        request = FetchRequest(
            cluster_id=self._metadata.cluster_id,
            replica_state=ReplicaState(replica_id=self._metadata.node_id),
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=MAX_BYTES,
            topics=[FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[partition])],
        )
        response = await self._controller.ask_once(
            request, FetchResponse, timeout_s=self._timeout_s, version=FETCH_VERSION
        )
        if response.error_code:
            raise BrokerError(ErrorCode(response.error_code), self._refusal(response.error_code))
        answers = [found for topic in response.responses for found in topic.partitions]
        if not answers:
            raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, "the controller's answer is empty")
        return answers[0]

    def _refusal(self, code: int) -> str:
        if code == ErrorCode.INCONSISTENT_CLUSTER_ID:
            return (
                f"this node's data belongs to cluster {self._metadata.cluster_id}, and the controller to another one: "
                "name another directory in log.dirs"
            )
        return ErrorCode(code).name

    def _truncate(self, diverging: EpochEndOffset) -> None:
        """Go back to where both logs agree, as far as epochs tell (KIP-279)."""
        log = self._metadata.log
        _, own_end = log.end_offset_for_epoch(diverging.epoch)
        offset = min(diverging.end_offset, own_end if own_end >= 0 else diverging.end_offset)
        if offset >= log.end_offset:
            offset = log.start_offset
        logger.warning("metadata from offset %d on is not the controller's: forgotten", offset)
        log.truncate_to(offset)
        self._metadata.start_over()

    async def _load_snapshot(self, snapshot: SnapshotId) -> None:
        pieces = bytearray()
        while True:
            piece = await self._snapshot_piece(snapshot, len(pieces))
            if piece.error_code:
                raise BrokerError(ErrorCode(piece.error_code))
            data = bytes(piece.unaligned_records)  # type: ignore[arg-type]  # decoded records are a memoryview
            pieces += data
            if len(pieces) >= piece.size or not data:
                break
            if piece.size > LARGEST_SNAPSHOT_BYTES:
                raise BrokerError(ErrorCode.INVALID_REQUEST, f"a snapshot of {piece.size} bytes")
        logger.info("loaded the metadata up to offset %d, %d bytes", snapshot.end_offset, len(pieces))
        self._metadata.log.install_snapshot(snapshot, bytes(pieces))
        self._metadata.start_over()

    async def _snapshot_piece(self, snapshot: SnapshotId, position: int) -> PartitionSnapshotResponse:
        wanted = PartitionSnapshot(
            current_leader_epoch=-1,
            snapshot_id=WireSnapshotId(end_offset=snapshot.end_offset, epoch=snapshot.epoch),
            position=position,
        )
        request = FetchSnapshotRequest(
            cluster_id=self._metadata.cluster_id,
            replica_id=self._metadata.node_id,
            max_bytes=MAX_BYTES,
            topics=[TopicSnapshot(name=CLUSTER_METADATA, partitions=[wanted])],
        )
        response = await self._controller.ask_once(request, FetchSnapshotResponse, timeout_s=self._timeout_s)
        if response.error_code:
            raise BrokerError(ErrorCode(response.error_code), self._refusal(response.error_code))
        return response.topics[0].partitions[0]
