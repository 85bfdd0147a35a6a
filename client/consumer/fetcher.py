"""The task that fetches ahead: one Fetch in flight to each broker, decoded when the records are returned.

A partition is fetched again only when its fetched records have been returned, so that the memory is bounded by
`fetch.max.bytes` per broker.
"""

from __future__ import annotations

import logging
from collections import defaultdict, deque
from uuid import UUID

import trio

from ...protocol.apis import ApiKey
from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from ...protocol.records.batches import iter_batches
from ...protocol.schema import NO_UUID
from ...protocol.topic_partition import AnyTopicPartition
from ..config import ConsumerConfig
from ..errors import STALE_METADATA_CODES, ConnectionLostError, RecordTooLargeError, is_retriable
from ..metrics import Metrics
from ..wire.cluster import Cluster
from ..wire.connection import Connection
from ..wire.leader_hints import LeaderHints
from .consumer_record import ConsumerRecord
from .fetch_session import FIRST_VERSION_WITH_TOPIC_IDS, FetchPosition, FetchSession
from .fetched_partition import FetchedBatches, FetchedPartition
from .poll_boundary import PollBoundary
from .preferred_replicas import PreferredReplicas
from .subscription import PartitionPosition, Subscription

logger = logging.getLogger(__name__)

READ_COMMITTED = 1
NO_LEADER = -1
NO_LEADER_EPOCH = -1
SESSION_CODES = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class Fetcher:
    """The fetches of the assigned partitions; the consumer calls `take`."""

    def __init__(
        self,
        cluster: Cluster,
        subscription: Subscription,
        config: ConsumerConfig,
        metrics: Metrics,
        boundary: PollBoundary,
    ) -> None:
        self.resets: set[AnyTopicPartition] = set()
        """The partitions whose position is out of range: the position finder finds a new one."""
        self._buffer: deque[FetchedPartition] = deque()
        self._boundary = boundary
        self._cluster = cluster
        self._subscription = subscription
        self._config = config
        self._metrics = metrics
        self._preferred = PreferredReplicas(config.metadata_max_age_ms)
        self._busy: set[int] = set()
        self._sessions: defaultdict[int, FetchSession] = defaultdict(FetchSession)
        self._wanted = trio.Event()

    def wake(self) -> None:
        """Check for partitions to fetch again: records were returned, or partitions assigned, sought or resumed."""
        self._wanted.set()

    async def run(self) -> None:
        """Fetch the assigned partitions until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                self._wanted = trio.Event()
                for leader, positions in self._fetchable().items():
                    if leader not in self._busy:
                        self._busy.add(leader)
                        nursery.start_soon(self._fetch, leader, positions)
                await self._wanted.wait()

    def _fetchable(self) -> dict[int, dict[AnyTopicPartition, FetchPosition]]:
        buffered = {fetched.place for fetched in self._buffer}
        by_node: defaultdict[int, dict[AnyTopicPartition, FetchPosition]] = defaultdict(dict)
        for place, position in self._subscription.positions.items():
            if position.offset is None or not position.is_handed_out or place in buffered or place in self.resets:
                continue
            node = self._preferred.get(place)
            if node is None or node not in self._cluster.brokers:
                node = self._cluster.leader(*place)
            by_node[NO_LEADER if node is None else node][place] = FetchPosition(
                position.offset, self._leader_epoch(*place)
            )
        return by_node

    def _leader_epoch(self, topic: str, partition: int) -> int:
        """Return the leader epoch in the metadata: brokers refuse fetches with another epoch (KIP-320)."""
        metadata = self._cluster.topics.get(topic)
        if metadata is None or partition >= len(metadata.partitions):
            return NO_LEADER_EPOCH
        return metadata.partitions[partition].leader_epoch

    async def _fetch(self, leader: int, positions: dict[AnyTopicPartition, FetchPosition]) -> None:
        try:
            if leader == NO_LEADER:
                await self._cluster.refresh({topic for topic, _ in positions})
                if all(self._cluster.leader(*place) is None for place in positions):
                    await self._pause()
                return
            connection = await self._cluster.connection(leader)
            answer = await self._exchange(connection, leader, positions)
            await self._take_in(answer, leader, positions)
        except (ConnectionLostError, BrokerError) as failure:
            for place in positions:
                self._preferred.forget(place)
            self._sessions[leader].reset()
            if is_retriable(failure):
                logger.info("fetching failed: %s", failure)
                await self._pause()
            else:
                await self._boundary.tell(failure)
            await self._refresh({topic for topic, _ in positions})
        finally:
            self._busy.discard(leader)
            self.wake()

    async def _exchange(
        self, connection: Connection, leader: int, positions: dict[AnyTopicPartition, FetchPosition]
    ) -> FetchResponse:
        topic_ids = {topic: self._topic_id(topic) for topic, _ in positions}
        newest = FIRST_VERSION_WITH_TOPIC_IDS - 1 if NO_UUID in topic_ids.values() else None
        version = connection.versions.version(ApiKey.FETCH, newest=newest)
        request = FetchRequest(
            max_wait_ms=self._config.fetch_max_wait_ms,
            min_bytes=self._config.fetch_min_bytes,
            max_bytes=self._config.fetch_max_bytes,
            isolation_level=READ_COMMITTED if self._config.is_read_committed and version >= 4 else 0,
            rack_id=self._config.client_rack,
            gregor_as_stored=self._config.fetch_as_stored,
            gregor_with_tags=self._config.fetch_batch_tags,
            gregor_with_tag_runs=self._config.fetch_as_stored,
        )
        self._sessions[leader].fill(request, positions, self._config.max_partition_fetch_bytes, version, topic_ids)
        self._metrics.count("fetch")
        timeout_ms = self._config.request_timeout_ms + self._config.fetch_max_wait_ms
        return await connection.request(request, FetchResponse, version=version, timeout_ms=timeout_ms)

    async def _take_in(
        self, answer: FetchResponse, leader: int, positions: dict[AnyTopicPartition, FetchPosition]
    ) -> None:
        if answer.error_code:
            code = ErrorCode(answer.error_code)
            self._sessions[leader].reset()
            if code not in SESSION_CODES:
                raise BrokerError(code, "Fetch")
            return
        self._sessions[leader].answered(answer.session_id)
        hints = LeaderHints(self._cluster, answer.node_endpoints)
        names = {self._topic_id(topic): topic for topic, _ in positions}
        stale_topics = set()
        refusals: list[BrokerError | RecordTooLargeError] = []
        for topic in answer.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for data in topic.partitions:
                place = (name, data.partition_index)
                try:
                    if not self._take_partition(place, data, positions.get(place), hints):
                        stale_topics.add(name)
                except (BrokerError, RecordTooLargeError) as refusal:
                    refusals.append(refusal)
        if stale_topics:
            self._sessions[leader].reset()
            await self._pause()
            await self._refresh(stale_topics)
        for told in refusals:
            # Fetch again only after the user was informed: otherwise a refusal would be repeated without end.
            await self._boundary.tell(told)

    def _topic_id(self, topic: str) -> UUID:
        metadata = self._cluster.topics.get(topic)
        return NO_UUID if metadata is None else metadata.topic_id

    def _take_partition(
        self, place: AnyTopicPartition, data: PartitionData, asked: FetchPosition | None, hints: LeaderHints
    ) -> bool:
        """Buffer the fetched data; return False if the partition's metadata must be refreshed first.

        Raises BrokerError for a permanent refusal, RecordTooLargeError.
        """
        position = self._subscription.positions.get(place)
        if position is None or asked is None or position.offset != asked.offset:
            # The assignment or the position has changed while the request was in flight.
            return True
        code = ErrorCode(data.error_code)
        is_moved = hints.take(*place, code, data.current_leader)
        if code is not ErrorCode.NONE and self._preferred.forget(place):
            logger.info("%s-%d: %s, so the partition is read from the leader again", *place, code.name)
        elif data.preferred_read_replica >= 0:
            logger.debug("%s-%d is read from broker %d, in the same rack", *place, data.preferred_read_replica)
            self._preferred.prefer(place, data.preferred_read_replica)
        elif is_moved:
            logger.debug("%s-%d is read from broker %s, its new leader", *place, self._cluster.leader(*place))
        elif code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self.resets.add(place)
            self._boundary.wake()
        elif code in STALE_METADATA_CODES or (code is not ErrorCode.NONE and code.retriable):
            return False
        elif code is not ErrorCode.NONE:
            raise BrokerError(code, f"{place[0]}-{place[1]}")
        else:
            position.high_watermark = data.high_watermark
            position.last_stable_offset = data.last_stable_offset
            position.log_start_offset = data.log_start_offset
            if data.records is not None and len(data.records):  # type: ignore[arg-type]
                self._keep(place, position, data)
        return True

    def _keep(self, place: AnyTopicPartition, position: PartitionPosition, data: PartitionData) -> None:
        if next(iter_batches(data.records), None) is None:  # type: ignore[arg-type]
            # Only before Fetch v3 can a limit truncate the very first batch (KIP-74).
            limit = self._config.max_partition_fetch_bytes
            raise RecordTooLargeError(
                f"the record at {place[0]}-{place[1]} offset {position.offset} exceeds max.partition.fetch.bytes"
                f" ({limit})"
            )
        self._buffer.append(FetchedPartition(place, position, data, self._config))
        self._boundary.wake()

    # --- called by the consumer ---

    def take(self, count: int) -> list[ConsumerRecord]:
        """Return up to `count` records. Raises BrokerError if the next batch is damaged."""
        taken: list[ConsumerRecord] = []
        while len(taken) < count:
            try:
                fetched = self._first_ready()
            except BrokerError:
                # The intact records are returned first; the damaged batch is fetched again, and raised at the next
                # call.
                if not taken:
                    raise
                break
            if fetched is None:
                break
            records = fetched.take(count - len(taken))
            self._subscription.hand_out(fetched.position, records[0].offset, records[-1].offset + 1)
            taken += records
        return taken

    def take_one(self) -> ConsumerRecord | None:
        """Return the next record, or None if there is none now. Raises the errors of `take`."""
        fetched = self._buffer[0] if self._buffer else None
        if fetched is None or not (fetched.is_open and fetched.position.is_handed_out):
            fetched = self._first_ready()
            if fetched is None:
                return None
        record = fetched.take_one()
        self._subscription.hand_out(fetched.position, record.offset, record.offset + 1)
        return record

    def take_batches(self) -> list[FetchedBatches]:
        """Return all fetched batches, undecoded, except those of paused partitions. Raises the errors of `take`."""
        taken: list[FetchedBatches] = []
        for fetched in [fetched for fetched in self._buffer if fetched.position.is_handed_out]:
            position = fetched.position
            first_offset = position.offset or 0
            self._drop(fetched)
            try:
                tags, tag_runs = fetched.tags(), fetched.tag_runs()
                batches = fetched.take_batches()
            except BrokerError:
                # The intact batches are returned first, as in `take`.
                if taken:
                    continue
                raise
            next_offset = position.offset or 0
            self._subscription.hand_out(position, first_offset, next_offset)
            taken.append(FetchedBatches(*fetched.place, first_offset, batches, next_offset, tags, tag_runs))
        return taken

    def _first_ready(self) -> FetchedPartition | None:
        """Move a partition with records to the front and return it. Raises BrokerError for a damaged batch."""
        for _ in range(len(self._buffer)):
            fetched = self._buffer[0]
            if not fetched.position.is_handed_out:
                self._buffer.rotate(-1)
                continue
            try:
                if fetched.has_records():
                    return fetched
            except BrokerError:
                # Damaged records are not skipped silently: they are fetched again until the user seeks.
                self._drop(fetched)
                raise
            self._drop(fetched)
        return None

    def _drop(self, fetched: FetchedPartition) -> None:
        self._buffer.remove(fetched)
        self.wake()

    def forget(self, place: AnyTopicPartition) -> None:
        """Drop the fetched records of a partition whose position was moved."""
        self._buffer = deque(item for item in self._buffer if item.place != place)
        self.resets.discard(place)

    def drop_stale(self) -> None:
        """Drop the fetched records of partitions that are no longer assigned, or whose position was moved."""
        current = self._subscription.positions
        self._buffer = deque(item for item in self._buffer if current.get(item.place) is item.position)
        self.resets &= current.keys()

    async def _refresh(self, topics: set[str]) -> None:
        try:
            await self._cluster.refresh(topics)
        except (ConnectionLostError, BrokerError) as failure:
            logger.info("metadata could not be fetched: %s", failure)
            for topic in topics:
                self._cluster.topics.pop(topic, None)

    async def _pause(self) -> None:
        await trio.sleep(self._config.retry_backoff_ms / 1000)
