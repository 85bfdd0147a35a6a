"""The consumer: async iteration over records of partitions that a group or the user has assigned.

Behind `poll` stand a few tasks: `fetcher.py` fetches ahead, `group_membership.py` keeps the membership,
`position_finder.py` finds where newly assigned partitions begin, and those here commit and refresh metadata now and
then. A record counts as processed, and may be committed, when the next one is asked for.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import Self

import trio

from ...protocol.errors import BrokerError, ErrorCode
from ..config import ConsumerConfig
from ..errors import ClientError, ClosedError, ConfigError, ConnectionLostError
from ..lifetime import BackgroundTasks
from ..metrics import Metrics
from ..wire.cluster import Cluster, PartitionMetadata
from ..wire.group_offsets import NO_MEMBERSHIP, Membership, commit_offsets, fetch_committed
from ..wire.offset_lookup import EARLIEST, LATEST, OffsetAndTimestamp, list_offsets
from .classic_protocol_membership import ClassicProtocolMembership
from .consumer_protocol_membership import ConsumerProtocolMembership
from .consumer_record import ConsumerRecord
from .fetcher import FetchedBatches, Fetcher
from .group_membership import GroupMembership
from .position_finder import PositionFinder
from .subscription import Subscription, TopicPartition

logger = logging.getLogger(__name__)

CLOSE_GRACE_SECONDS = 5.0
RebalanceListener = Callable[[list[TopicPartition]], Awaitable[None]]


class Consumer:
    """Reads records::

        async with Consumer("localhost:9092", group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["topic"])
            async for record in consumer:
                print(record.offset, record.value)

    Keywords are Kafka's consumer keys with underscores (`ConsumerConfig`).
    """

    def __init__(self, bootstrap_servers: str | Iterable[str], **config: object) -> None:
        self.config = ConsumerConfig.from_properties(config)
        self._metrics = Metrics()
        self._cluster = Cluster(bootstrap_servers, self.config, self._metrics)
        self._subscription = Subscription()
        self._fetcher = Fetcher(self._cluster, self._subscription, self.config, self._metrics)
        self._group: GroupMembership | None = None
        self._pattern: re.Pattern[str] | None = None
        self._user_revoked: RebalanceListener | None = None
        self._user_assigned: RebalanceListener | None = None
        self._unread: deque[ConsumerRecord] = deque()
        self._in_hand: dict[TopicPartition, int] = {}
        self._current: ConsumerRecord | None = None
        self._committing = trio.Lock()
        self._position_finder = PositionFinder(self._cluster, self._subscription, self._fetcher, self.config)
        self._background = BackgroundTasks()
        self._nursery: trio.Nursery | None = None

    async def __aenter__(self) -> Self:
        await self._background.open(self._start_tasks)
        return self

    async def _start_tasks(self, nursery: trio.Nursery) -> None:
        await nursery.start(self._cluster.run)
        self._nursery = nursery
        nursery.start_soon(self._fetcher.run)
        nursery.start_soon(self._guard, self._position_finder.run)
        nursery.start_soon(self._guard, self._refresh_metadata)
        if self.config.group_id is not None and self.config.enable_auto_commit:
            nursery.start_soon(self._guard, self._commit_now_and_then)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if self.config.group_id is not None and self.config.enable_auto_commit:
                await self._at_last(lambda: self._commit(self._consumed() if error is None else self._processed()))
            if self._group is not None:
                await self._at_last(self._group.leave)
        finally:
            self._nursery = None
            await self._background.close()

    async def _at_last(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do something on the way out, even if cancelled, but not for long; what fails is only logged."""
        with trio.CancelScope(deadline=trio.current_time() + CLOSE_GRACE_SECONDS, shield=True) as scope:
            try:
                await work()
            except (ClientError, BrokerError) as failure:
                logger.info("closing: %s", failure)
        if scope.cancelled_caught:
            logger.info("closing: nothing came of it in %d s", CLOSE_GRACE_SECONDS)

    async def _guard(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run a background task; what it dies of is raised from the next `poll`."""
        try:
            await task()
        except (ClientError, BrokerError) as error:
            self._fetcher.report(error)

    # --- what to read ---

    def subscribe(
        self,
        topics: Iterable[str] | re.Pattern[str],
        *,
        on_assigned: RebalanceListener | None = None,
        on_revoked: RebalanceListener | None = None,
    ) -> None:
        """Read these topics, or all whose whole name matches, sharing them with the group.

        The listeners are awaited in the background when partitions come and before they go.
        Raises ClosedError, ConfigError without `group_id`.
        """
        if self._nursery is None:
            raise ClosedError("the consumer is not open")
        if self.config.group_id is None:
            raise ConfigError("subscribe needs a group_id; use assign without one")
        self._user_assigned, self._user_revoked = on_assigned, on_revoked
        if isinstance(topics, re.Pattern):
            self._pattern = topics
            self._subscription.topics = frozenset()
        else:
            self._pattern = None
            self._subscription.topics = frozenset(topics)
        if self._group is not None:
            self._group.rejoin()
            return
        is_classic = self.config.group_protocol.lower() == "classic"
        self._group = (ClassicProtocolMembership if is_classic else ConsumerProtocolMembership)(
            self._cluster,
            self._subscription,
            self.config,
            on_revoked=self._on_revoked,
            on_assigned=self._on_assigned,
        )
        self._nursery.start_soon(self._guard, self._run_group)

    async def _run_group(self) -> None:
        assert self._group is not None
        if self._pattern is not None:
            await self._match_pattern()
        await self._group.run()

    async def _on_revoked(self, places: list[TopicPartition]) -> None:
        if self._user_revoked is not None:
            await self._user_revoked(places)
        if self.config.enable_auto_commit:
            processed = self._processed()
            try:
                await self._commit({place: processed[place] for place in places if place in processed})
            except (ClientError, BrokerError) as failure:
                logger.info("commit before a rebalance: %s", failure)

    async def _on_assigned(self, places: list[TopicPartition]) -> None:
        self._drop_stale()
        if self._user_assigned is not None:
            await self._user_assigned(places)
        self._position_finder.wake()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these (topic, partition)s, without sharing."""
        self._subscription.assign(partitions)
        self._drop_stale()
        self._position_finder.wake()

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are being read."""
        return list(self._subscription.positions)

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Go on at `offset`. Raises KeyError if the partition is not assigned."""
        self._move((topic, partition), offset)
        self._fetcher.wake()

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go to the first record of these, or of all assigned. Raises as `beginning_offsets`."""
        for place, offset in (await self.beginning_offsets(partitions or self.assignment())).items():
            self.seek(*place, offset)

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go behind the last record of these, or of all assigned. Raises as `end_offsets`."""
        for place, offset in (await self.end_offsets(partitions or self.assignment())).items():
            self.seek(*place, offset)

    def _move(self, place: TopicPartition, offset: int | None) -> None:
        self._subscription.seek(place, offset)
        self._fetcher.forget(place)
        self._unread = deque(record for record in self._unread if record[:2] != place)
        self._in_hand.pop(place, None)
        if self._current is not None and self._current[:2] == place:
            self._current = None

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out no records of these until `resume`."""
        for place in partitions:
            self._subscription.positions[place].is_paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        """Undo `pause`."""
        for place in partitions:
            self._subscription.positions[place].is_paused = False
        self._fetcher.wake()

    # --- reading ---

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        while not self._unread:
            await self._take(self.config.max_poll_records)
        self._current = record = self._unread.popleft()
        return record

    async def poll(self, timeout_ms: int | None = None, max_records: int | None = None) -> list[ConsumerRecord]:
        """The next records of any partitions, up to `max_records` (default `max.poll.records`).

        Waits for at least one until `timeout_ms` (None: for ever), then returns none. Raises BrokerError or a
        ClientError for what keeps the consumer from going on, and ClosedError.
        """
        limit = max_records or self.config.max_poll_records
        self._current = None
        self._in_hand.clear()
        with trio.move_on_after(float("inf") if timeout_ms is None else timeout_ms / 1000):
            while not self._unread:
                await self._take(limit)
        records = [self._unread.popleft() for _ in range(min(limit, len(self._unread)))]
        for record in records:
            self._in_hand.setdefault((record.topic, record.partition), record.offset)
        return records

    async def poll_batches(self, timeout_ms: int | None = None) -> list[FetchedBatches]:
        """All batches that are at hand, as they came: neither decompressed nor copied, for whoever passes them on.

        Markers, and with read_committed the batches of aborted transactions, are left out; an entry without batches
        means that a partition held only such. Waits and raises as `poll`; not to be mixed with it.
        """
        self._current = None
        with trio.move_on_after(float("inf") if timeout_ms is None else timeout_ms / 1000):
            while True:
                self._check_in()
                if fetched := self._fetcher.take_batches():
                    await trio.lowlevel.cancel_shielded_checkpoint()
                    return fetched
                await self._fetcher.has_news.wait()
        return []

    def current_lag(self, topic: str, partition: int) -> int | None:
        """How many offsets are still to come, as far as the last fetch knew (KIP-695); None while that is not known."""
        known = self._subscription.positions[topic, partition]
        end = known.last_stable_offset if self.config.is_read_committed else known.high_watermark
        position = self.position(topic, partition)
        return None if position is None or end < 0 else max(end - position, 0)

    async def _take(self, count: int) -> None:
        """Move up to `count` records from what was fetched to `_unread`, waiting for some."""
        self._current = None
        self._check_in()
        records = self._fetcher.take(count)
        if not records:
            # Waiting would make a checkpoint; so does this, for a consumer that is never kept waiting.
            await self._fetcher.has_news.wait()
            return
        self._unread.extend(records)
        await trio.lowlevel.cancel_shielded_checkpoint()

    def _check_in(self) -> None:
        """Note that the user is there and asks for records."""
        if self._nursery is None:
            raise ClosedError("the consumer is not open")
        if self._group is not None:
            self._group.polled()
        if self._fetcher.resets:
            self._position_finder.wake()

    def _drop_stale(self) -> None:
        """Forget what was read ahead of partitions that are gone."""
        self._fetcher.drop_stale()
        current = self._subscription.positions
        self._unread = deque(record for record in self._unread if record[:2] in current)
        self._fetcher.wake()

    # --- positions ---

    def position(self, topic: str, partition: int) -> int | None:
        """The offset of the next record to be handed out; None while it is not known."""
        return self._consumed().get((topic, partition))

    def _consumed(self) -> dict[TopicPartition, int]:
        """The next offset of each partition, not counting what is read ahead."""
        positions = self._subscription.consumed()
        for record in reversed(self._unread):
            positions[record.topic, record.partition] = record.offset
        return positions

    def _processed(self) -> dict[TopicPartition, int]:
        """As `_consumed`, not counting the records that the user is still busy with."""
        positions = self._consumed()
        if self._current is not None:
            positions[self._current.topic, self._current.partition] = self._current.offset
        positions.update({place: offset for place, offset in self._in_hand.items() if place in positions})
        return positions

    # --- offsets ---

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit these offsets (of the next records to read), or those behind all records handed out.

        Commits take effect in the order of their calls. What lies before these offsets is not in hand any more.
        Raises BrokerError (ILLEGAL_GENERATION and the like after a rebalance), DeadlineExceededError.
        """
        if offsets is None:
            offsets = self._consumed()
        self._note_processed(offsets)
        await self._commit(offsets)

    def _note_processed(self, offsets: Mapping[TopicPartition, int]) -> None:
        for place, offset in offsets.items():
            if self._in_hand.get(place, offset) < offset:
                self._in_hand[place] = offset
        current = self._current
        if current is not None and offsets.get(current[:2], 0) > current.offset:
            self._current = None

    async def _commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        if self.config.group_id is None:
            raise ConfigError("commit needs a group_id")
        if not offsets:
            return
        # One at a time: an earlier one that has to be repeated would undo a later one else.
        async with self._committing:
            await commit_offsets(
                self._cluster,
                self.config.group_id,
                offsets,
                self.config,
                timeout_ms=self.config.default_api_timeout_ms,
                membership=self._membership(),
            )

    def _membership(self) -> Membership:
        """As whom to commit. Raises BrokerError UNKNOWN_MEMBER_ID for who subscribes and is not in the group now."""
        if self._group is None:
            return NO_MEMBERSHIP
        membership = self._group.membership
        if membership.generation_id < 0:
            # Coordinators take this from anybody once a group is empty (Kafka: CommitFailedException).
            raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID, f"not a member of {self.config.group_id} now")
        return membership

    async def _commit_now_and_then(self) -> None:
        last: dict[TopicPartition, int] = {}
        while True:
            await trio.sleep(self.config.auto_commit_interval_ms / 1000)
            processed = self._processed()
            changed = {place: offset for place, offset in processed.items() if last.get(place) != offset}
            try:
                await self._commit(changed)
                last = processed
            except (ClientError, BrokerError) as failure:
                logger.info("auto commit: %s", failure)

    async def committed(self, *partitions: TopicPartition) -> dict[TopicPartition, int]:
        """The group's committed offsets of these partitions, or of those assigned; without the ones that have none."""
        if self.config.group_id is None:
            raise ConfigError("committed needs a group_id")
        found = await fetch_committed(
            self._cluster,
            self.config.group_id,
            partitions or self.assignment(),
            self.config,
            timeout_ms=self.config.default_api_timeout_ms,
        )
        return {place: entry.offset for place, entry in found.items()}

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each. Raises BrokerError or DeadlineExceededError, as the next two."""
        found = await self._list_offsets(dict.fromkeys(partitions, EARLIEST))
        return {place: entry.offset for place, entry in found.items() if entry is not None}

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last record (with read_committed: the last stable one) of each."""
        found = await self._list_offsets(dict.fromkeys(partitions, LATEST))
        return {place: entry.offset for place, entry in found.items() if entry is not None}

    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each partition that is not older than its time; None where there is none."""
        return await self._list_offsets(timestamps_ms)

    async def _list_offsets(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        return await list_offsets(
            self._cluster,
            wanted,
            self.config,
            timeout_ms=self.config.default_api_timeout_ms,
            read_committed=self.config.is_read_committed,
        )

    # --- topics ---

    async def partitions_for(self, topic: str) -> list[PartitionMetadata]:
        """The topic's partitions; none if it does not exist. Raises ConnectionLostError."""
        await self._cluster.refresh([topic], allow_auto_create=False)
        metadata = self._cluster.topics.get(topic)
        return metadata.partitions if metadata is not None else []

    async def topics(self) -> list[str]:
        """The names of all topics. Raises ConnectionLostError."""
        answer = await self._cluster.refresh(None)
        return sorted(topic.name for topic in answer.topics if topic.name and not topic.error_code)

    async def _refresh_metadata(self) -> None:
        while True:
            await trio.sleep(self.config.metadata_max_age_ms / 1000)
            try:
                if self._pattern is not None:
                    await self._match_pattern()
                topics = {topic for topic, _ in self._subscription.positions} | self._subscription.topics
                await self._cluster.refresh(topics)
                if self._group is not None and self._group.topics_changed():
                    self._group.rejoin()
            except (ConnectionLostError, BrokerError) as failure:
                logger.info("metadata could not be fetched: %s", failure)

    async def _match_pattern(self) -> None:
        """Subscribe to the topics that match now; the group meets again if they have changed."""
        assert self._pattern is not None
        await self._cluster.refresh(None)
        matching = frozenset(
            name
            for name, topic in self._cluster.topics.items()
            if self._pattern.fullmatch(name) and not topic.is_internal
        )
        if matching != self._subscription.topics:
            self._subscription.topics = matching
            if self._group is not None:
                self._group.rejoin()

    def metrics(self) -> dict[str, float]:
        """Counters and rates: `fetch-rate`, `node-0.incoming-byte-total`..."""
        return self._metrics.snapshot()
