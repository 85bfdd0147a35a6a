"""The task that keeps a consumer supplied: one Fetch under way for each broker, decoded when it is handed out.

A partition is asked for again only when what came from it has been handed out, so what is held in memory is at most
`fetch.max.bytes` a broker.
"""

from __future__ import annotations

import logging
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

import trio

from ...protocol.apis import ApiKey
from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from ...protocol.records.batches import BatchView, iter_batches, iter_records
from ...protocol.records.control import ControlType, control_type
from ...protocol.records.tagged_batches import TaggedBatch, decode_tagged_batches
from ...protocol.schema import NO_UUID
from ..config import ConsumerConfig
from ..errors import STALE_METADATA_CODES, ConnectionLostError, RecordTooLargeError
from ..metrics import Metrics
from ..wire.cluster import Cluster
from ..wire.connection import Connection
from .consumer_record import ConsumerRecord, decode_batch
from .fetch_session import FIRST_VERSION_WITH_TOPIC_IDS, FetchSession
from .preferred_replicas import PreferredReplicas
from .subscription import PartitionPosition, Subscription, TopicPartition

logger = logging.getLogger(__name__)

READ_COMMITTED = 1
NO_LEADER = -1
SESSION_CODES = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class FetchedBatches(NamedTuple):
    """Batches of one partition as `Consumer.poll_batches` hands them out; the next ones begin at `next_offset`.

    The first may hold records from before `first_offset`, which were not asked for.
    """

    topic: str
    partition: int
    first_offset: int
    batches: list[BatchView]
    next_offset: int
    tags: list[TaggedBatch]
    """The enriched tags of all stored batches that were fetched, with `fetch_batch_tags` from a Gregor broker."""


class FetchedPartition:
    """What one Fetch brought for one partition, not handed out yet."""

    __slots__ = (
        "_aborted",
        "_batches",
        "_check_crcs",
        "_end_offset",
        "_hides_aborted",
        "_next",
        "_records",
        "_tags",
        "place",
        "position",
    )

    def __init__(
        self, place: TopicPartition, position: PartitionPosition, data: PartitionData, config: ConsumerConfig
    ) -> None:
        self.place = place
        self.position = position
        self._batches = iter_batches(data.records or b"")  # type: ignore[arg-type]
        self._records: list[ConsumerRecord] = []
        self._next = 0
        self._end_offset = 0
        self._check_crcs = config.check_crcs
        self._hides_aborted = config.is_read_committed
        self._tags = data.gregor_batch_tags or b""
        aborted = sorted(data.aborted_transactions or (), key=lambda item: item.first_offset)
        self._aborted = AbortedFilter([(item.first_offset, item.producer_id) for item in aborted])

    def take(self, count: int) -> list[ConsumerRecord]:
        """Hand out up to `count` records and move the position behind them; fewer mean that all is handed out.

        Raises BrokerError for damaged batches.
        """
        taken: list[ConsumerRecord] = []
        while len(taken) < count:
            if self._next == len(self._records):
                # Behind the batch, whose last records may have been compacted away.
                self.position.offset = max(self.position.offset or 0, self._end_offset)
                batch = next(self._batches, None)
                if batch is None:
                    return taken
                self._open(batch)
                continue
            end = self._next + count - len(taken)
            taken += self._records[self._next : end]
            self._next = min(end, len(self._records))
            self.position.offset = taken[-1].offset + 1
        return taken

    def take_batches(self) -> list[BatchView]:
        """The batches that are left, and move the position behind them. Raises as `take`."""
        taken = []
        for batch in self._batches:
            if self._is_visible(batch):
                taken.append(batch)
            self.position.offset = batch.last_offset + 1
        return taken

    def tags(self) -> list[TaggedBatch]:
        """The enriched tags that came with the batches. Raises BrokerError if they cannot be read."""
        return decode_tagged_batches(self._tags)

    def _open(self, batch: BatchView) -> None:
        """Begin with a batch, or step over it."""
        from_offset = self.position.offset or 0
        is_visible = self._is_visible(batch)
        self._records = decode_batch(*self.place, batch, from_offset) if is_visible else []
        self._next = 0
        self._end_offset = batch.last_offset + 1

    def _is_visible(self, batch: BatchView) -> bool:
        """Whether it has records from the position on that are neither markers nor of an aborted transaction."""
        if self._check_crcs and not batch.crc_is_valid:
            raise BrokerError(ErrorCode.CORRUPT_MESSAGE, f"{batch!r} of {self.place} has a wrong CRC")
        if batch.is_control:
            self._aborted.pass_marker(batch)
            return False
        return batch.last_offset >= (self.position.offset or 0) and not (
            self._hides_aborted and self._aborted.hides(batch)
        )


class AbortedFilter:
    """Which batches belong to aborted transactions, going through them in order (Kafka's CompletedFetch)."""

    def __init__(self, transactions: Sequence[tuple[int, int]]) -> None:
        self._coming = deque(transactions)
        self._open: set[int] = set()

    def hides(self, batch: BatchView) -> bool:
        """Whether the batch was written in a transaction that was aborted later."""
        self._open_up_to(batch)
        return batch.is_transactional and batch.producer_id in self._open

    def pass_marker(self, batch: BatchView) -> None:
        """Note a transaction's end."""
        # A fetch may begin with the marker itself: then its transaction is over before anything of it was seen.
        self._open_up_to(batch)
        if control_type(next(iter_records(batch)).key) is ControlType.ABORT:
            self._open.discard(batch.producer_id)

    def _open_up_to(self, batch: BatchView) -> None:
        while self._coming and self._coming[0][0] <= batch.last_offset:
            self._open.add(self._coming.popleft()[1])


class Fetcher:
    """Fetches for the assigned partitions; `take` is what the consumer calls."""

    def __init__(self, cluster: Cluster, subscription: Subscription, config: ConsumerConfig, metrics: Metrics) -> None:
        self.has_news = trio.Event()
        self.resets: set[TopicPartition] = set()
        """Partitions whose position is out of range: the consumer finds them a new one."""
        self._buffer: deque[FetchedPartition] = deque()
        self._error: Exception | None = None
        self._cluster = cluster
        self._subscription = subscription
        self._config = config
        self._metrics = metrics
        self._preferred = PreferredReplicas(config.metadata_max_age_ms)
        self._busy: set[int] = set()
        self._sessions: defaultdict[int, FetchSession] = defaultdict(FetchSession)
        self._wanted = trio.Event()

    def wake(self) -> None:
        """Have another look: something was handed out, assigned, sought or resumed."""
        self._wanted.set()

    async def run(self) -> None:
        """Fetch until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                self._wanted = trio.Event()
                for leader, offsets in self._fetchable().items():
                    if leader not in self._busy:
                        self._busy.add(leader)
                        nursery.start_soon(self._fetch, leader, offsets)
                await self._wanted.wait()

    def _fetchable(self) -> dict[int, dict[TopicPartition, int]]:
        buffered = {fetched.place for fetched in self._buffer}
        by_node: defaultdict[int, dict[TopicPartition, int]] = defaultdict(dict)
        for place, position in self._subscription.positions.items():
            if position.offset is None or position.is_paused or place in buffered or place in self.resets:
                continue
            node = self._preferred.get(place)
            if node is None or node not in self._cluster.brokers:
                node = self._cluster.leader(*place)
            by_node[NO_LEADER if node is None else node][place] = position.offset
        return by_node

    async def _fetch(self, leader: int, offsets: dict[TopicPartition, int]) -> None:
        try:
            if leader == NO_LEADER:
                await self._cluster.refresh({topic for topic, _ in offsets})
                if all(self._cluster.leader(*place) is None for place in offsets):
                    await self._pause()
                return
            connection = await self._cluster.connection(leader)
            answer = await self._exchange(connection, leader, offsets)
            await self._take_in(answer, leader, offsets)
        except (ConnectionLostError, BrokerError) as failure:
            if isinstance(failure, BrokerError) and not failure.code.retriable:
                self.report(failure)
                return
            logger.info("fetching failed: %s", failure)
            for place in offsets:
                self._preferred.forget(place)
            self._sessions[leader].reset()
            await self._pause()
            await self._refresh({topic for topic, _ in offsets})
        finally:
            self._busy.discard(leader)
            self.wake()

    async def _exchange(self, connection: Connection, leader: int, offsets: dict[TopicPartition, int]) -> FetchResponse:
        topic_ids = {topic: self._topic_id(topic) for topic, _ in offsets}
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
        )
        self._sessions[leader].fill(request, offsets, self._config.max_partition_fetch_bytes, version, topic_ids)
        self._metrics.count("fetch")
        timeout_ms = self._config.request_timeout_ms + self._config.fetch_max_wait_ms
        return await connection.request(request, FetchResponse, version=version, timeout_ms=timeout_ms)

    async def _take_in(self, answer: FetchResponse, leader: int, offsets: dict[TopicPartition, int]) -> None:
        if answer.error_code:
            code = ErrorCode(answer.error_code)
            self._sessions[leader].reset()
            if code not in SESSION_CODES:
                raise BrokerError(code, "Fetch")
            return
        self._sessions[leader].answered(answer.session_id)
        names = {self._topic_id(topic): topic for topic, _ in offsets}
        stale_topics = set()
        for topic in answer.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for data in topic.partitions:
                place = (name, data.partition_index)
                if not self._take_partition(place, data, offsets.get(place)):
                    stale_topics.add(name)
        if stale_topics:
            self._sessions[leader].reset()
            await self._pause()
            await self._refresh(stale_topics)

    def _topic_id(self, topic: str) -> UUID:
        metadata = self._cluster.topics.get(topic)
        return NO_UUID if metadata is None else metadata.topic_id

    def _take_partition(self, place: TopicPartition, data: PartitionData, asked: int | None) -> bool:
        """Buffer what came; False if the partition's metadata has to be fetched first."""
        position = self._subscription.positions.get(place)
        if position is None or asked is None or position.offset != asked:
            # The assignment or the position has changed while the request was under way.
            return True
        code = ErrorCode(data.error_code)
        if code is not ErrorCode.NONE and self._preferred.forget(place):
            logger.info("%s-%d: %s, so it is read from the leader again", *place, code.name)
        elif data.preferred_read_replica >= 0:
            logger.debug("%s-%d is read from broker %d, in the same rack", *place, data.preferred_read_replica)
            self._preferred.prefer(place, data.preferred_read_replica)
        elif code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self.resets.add(place)
            self.has_news.set()
        elif code in STALE_METADATA_CODES or (code is not ErrorCode.NONE and code.retriable):
            return False
        elif code is not ErrorCode.NONE:
            self.report(BrokerError(code, f"{place[0]}-{place[1]}"))
        else:
            position.high_watermark = data.high_watermark
            position.last_stable_offset = data.last_stable_offset
            position.log_start_offset = data.log_start_offset
            if data.records is not None and len(data.records):  # type: ignore[arg-type]
                self._keep(place, position, data)
        return True

    def _keep(self, place: TopicPartition, position: PartitionPosition, data: PartitionData) -> None:
        if next(iter_batches(data.records), None) is None:  # type: ignore[arg-type]
            # Only before Fetch v3 can a limit cut the very first batch (KIP-74).
            limit = self._config.max_partition_fetch_bytes
            self.report(
                RecordTooLargeError(
                    f"the record at {place[0]}-{place[1]} offset {position.offset} exceeds max.partition.fetch.bytes"
                    f" ({limit})"
                )
            )
            return
        self._buffer.append(FetchedPartition(place, position, data, self._config))
        self.has_news.set()

    def take(self, count: int) -> list[ConsumerRecord]:
        """Hand out up to `count` records of one partition. Raises what went wrong since the last call.

        When there are none, `has_news` is set once there may be.
        """
        self._raise_error()
        for _ in range(len(self._buffer)):
            fetched = self._buffer[0]
            if fetched.position.is_paused:
                self._buffer.rotate(-1)
                continue
            try:
                records = fetched.take(count)
            except BrokerError:
                # Nobody may skip damaged records unknowingly: they are fetched again until someone seeks.
                self._buffer.popleft()
                self.wake()
                raise
            if len(records) < count:
                self._buffer.popleft()
                self.wake()
            if records:
                return records
        self.has_news = trio.Event()
        return []

    def take_batches(self) -> list[FetchedBatches]:
        """Hand out all that is at hand, undecoded, but for partitions that are paused. Raises and waits as `take`."""
        self._raise_error()
        ready = [fetched for fetched in self._buffer if not fetched.position.is_paused]
        taken = []
        for fetched in ready:
            self._buffer.remove(fetched)
            self.wake()
            first_offset = fetched.position.offset or 0
            batches = fetched.take_batches()
            next_offset = fetched.position.offset or 0
            taken.append(FetchedBatches(*fetched.place, first_offset, batches, next_offset, fetched.tags()))
        if not taken:
            self.has_news = trio.Event()
        return taken

    def _raise_error(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def forget(self, place: TopicPartition) -> None:
        """Drop what was fetched of a partition whose position is moved."""
        self._buffer = deque(item for item in self._buffer if item.place != place)
        self.resets.discard(place)

    def drop_stale(self) -> None:
        """Forget what was fetched for partitions that are assigned no more, or whose position has been moved."""
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

    def report(self, error: Exception) -> None:
        """Have the consumer raise this from its next `take`."""
        self._error = error
        self.has_news.set()
