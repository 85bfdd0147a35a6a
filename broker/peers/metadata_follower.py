"""The follower of the controller's metadata log, which a broker fetches like any partition (KIP-595, KIP-630).

Fetched batches are first appended to this node's own copy, so a broker that restarts has its previous metadata.

The controller flushes records before it publishes them, so it never lacks records that a follower has. If it does, it
is not the controller that was followed before: an operator has restored an older copy of its directory, or lost it.
Nothing is truncated or deleted then; the broker stops (`ControllerBehindError`), as Kafka's does.
"""

from __future__ import annotations

import logging
from typing import Protocol, TypeVar

import trio

from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.internal_topics import CLUSTER_METADATA
from ...protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ...protocol.messages.fetch import (
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
from ...protocol.schema import Message
from ..metadata.snapshots import SnapshotId
from ..metadata.store import METADATA_TOPIC_ID, MetadataStore

logger = logging.getLogger(__name__)

FETCH_VERSION = 17
MAX_WAIT_MS = 2000
"""Longest time in ms that the controller may delay a fetch.

With Kafka's 500 ms (`KafkaRaftClient.MAX_FETCH_WAIT_MS`) these fetches would be two thirds of the work of an idle
cluster. New records end the delay; heartbeats, which are as rare as these fetches, tell the controller who is alive.
"""
MAX_BYTES = 8 * 1024 * 1024
LARGEST_SNAPSHOT_BYTES = 1 << 30
LONGEST_BACKOFF_S = 1.0
NO_EPOCH = -1
CONTROLLERS = 2
"""The endpoint type of controllers in DescribeCluster (KIP-919)."""

Response = TypeVar("Response", bound=Message)


class FollowedController(Protocol):
    """A link to the controller (`peers.RemoteController`)."""

    @property
    def connection_count(self) -> int:
        """The number of connections made so far; each may have reached a different process."""

    async def ask_once(
        self, request: Message, response: type[Response], *, timeout_s: float, version: int | None = None
    ) -> Response:
        """Send a request and wait for its answer. Raises BrokerError."""


class ControllerBehindError(BrokerError):
    """An error for a controller that lacks metadata of this broker, which must not follow it nor serve any longer."""


class MetadataFollower:
    """A task that replicates the controller's metadata log into a metadata store."""

    def __init__(
        self, metadata: MetadataStore, controller: FollowedController, *, timeout_s: float, retry_backoff_s: float
    ) -> None:
        self._metadata = metadata
        self._controller = controller
        self._timeout_s = timeout_s + MAX_WAIT_MS / 1000
        self._retry_backoff_s = retry_backoff_s
        self._is_reachable = True
        self._compared_on = 0
        """The number of the connection on which both logs were found to have the same history."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow until cancelled; report started when this node has what the controller had at the first answer.

        Raises ControllerBehindError; BrokerError INCONSISTENT_CLUSTER_ID if the first controller it reaches belongs to
        another cluster.
        """
        is_started = False
        pause_s = self._retry_backoff_s
        while True:
            try:
                is_caught_up = await self._follow_once()
            except ControllerBehindError:
                raise
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
            logger.warning(
                "cannot follow the controller, continuing with old metadata: %s", error.message or error.code
            )

    def _found(self) -> None:
        if not self._is_reachable:
            self._is_reachable = True
            logger.info("following the controller again, from offset %d", self._metadata.end_offset)

    async def _follow_once(self) -> bool:
        """Fetch once and apply the answer; return whether this node has all of the controller's metadata."""
        metadata = self._metadata
        if self._compared_on == 0 or self._compared_on != self._controller.connection_count:
            return await self._compare()
        log = metadata.log
        answer = await self._fetch(log.end_offset, log.last_epoch, max_wait_ms=MAX_WAIT_MS)
        if self._compared_on != self._controller.connection_count:
            # The answer came over a new connection, perhaps from another controller.
            return False
        if answer.snapshot_id.end_offset >= 0:
            await self._load_snapshot(SnapshotId(answer.snapshot_id.end_offset, answer.snapshot_id.epoch), answer)
        elif answer.diverging_epoch.end_offset >= 0:
            raise self._behind(answer)
        elif answer.records:
            metadata.take(bytes(answer.records))  # type: ignore[arg-type]  # decoded records are a memoryview
        metadata.controller_id = answer.current_leader.leader_id
        return metadata.end_offset >= answer.high_watermark

    async def _compare(self) -> bool:
        """Check that the controller has the last batch of this log, byte for byte. Raises ControllerBehindError.

        Return whether that batch is the controller's last one too: then a start needs no fetch that waits for more.
        Leader epochs alone are not enough: after an older copy of the controller's log was restored, the controller may
        start an epoch with the same number, and write other records at the same offsets.
        """
        log = self._metadata.log
        last = log.last_batch()
        offset, own = (log.end_offset, b"") if last is None else last
        epoch = log.last_epoch if last is None else NO_EPOCH
        answer = await self._fetch(offset, epoch, max_wait_ms=0)
        begins_later = answer.snapshot_id.end_offset >= log.end_offset
        if answer.high_watermark < log.end_offset or answer.current_leader.leader_epoch < log.last_epoch:
            raise self._behind(answer)
        records = bytes(answer.records or b"")  # type: ignore[arg-type]  # decoded records are a memoryview
        if not begins_later and (answer.diverging_epoch.end_offset >= 0 or not records.startswith(own)):
            raise self._behind(answer)
        self._compared_on = self._controller.connection_count
        self._metadata.controller_id = answer.current_leader.leader_id
        return log.end_offset >= answer.high_watermark

    def _behind(self, answer: PartitionData) -> ControllerBehindError:
        log = self._metadata.log
        return ControllerBehindError(
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            f"this broker's metadata (up to offset {log.end_offset}, epoch {log.last_epoch}) is not in the log of "
            f"controller {answer.current_leader.leader_id} (up to offset {answer.high_watermark}, epoch "
            f"{answer.current_leader.leader_epoch}): the controller has lost metadata, as after an older copy of its "
            "directory was restored. Nothing was deleted here. Stop the controller and give it the newest copy of the "
            "metadata with `gregor metadata recover` (docs/cluster.md)",
        )

    async def _fetch(self, offset: int, epoch: int, *, max_wait_ms: int) -> PartitionData:
        """Fetch from ``offset`` on; ``epoch`` is that of the record before it, -1 to skip the comparison."""
        partition = FetchPartition(fetch_offset=offset, last_fetched_epoch=epoch, partition_max_bytes=MAX_BYTES)
        request = FetchRequest(
            cluster_id=self._metadata.cluster_id,
            replica_state=ReplicaState(replica_id=self._metadata.node_id),
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=MAX_BYTES,
            topics=[FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[partition])],
        )
        response = await self._controller.ask_once(
            request, FetchResponse, timeout_s=self._timeout_s, version=FETCH_VERSION
        )
        if response.error_code:
            raise await self._refusal(ErrorCode(response.error_code))
        answers = [found for topic in response.responses for found in topic.partitions]
        if not answers:
            raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, "the controller's answer is empty")
        if answers[0].error_code:
            raise BrokerError(ErrorCode(answers[0].error_code))
        return answers[0]

    async def _refusal(self, code: ErrorCode) -> BrokerError:
        """Return the error for a request that the controller has refused."""
        if code is not ErrorCode.INCONSISTENT_CLUSTER_ID:
            return BrokerError(code, code.name)
        own = self._metadata.cluster_id
        request = DescribeClusterRequest(endpoint_type=CONTROLLERS)
        answer = await self._controller.ask_once(request, DescribeClusterResponse, timeout_s=self._timeout_s)
        return BrokerError(
            code,
            f"this node's data belongs to cluster {own}, and the controller that it found to cluster "
            f"{answer.cluster_id}: correct controller.quorum.voters, or name another directory in log.dirs",
        )

    async def _load_snapshot(self, snapshot: SnapshotId, answer: PartitionData) -> None:
        if snapshot.end_offset < self._metadata.end_offset:
            raise self._behind(answer)
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
            raise await self._refusal(ErrorCode(response.error_code))
        return response.topics[0].partitions[0]
