"""The consumer: async iteration over records of partitions that a group or the user has assigned.

`poll` is served by a few tasks: `fetcher.py` fetches ahead, `group_membership.py` keeps the membership,
`position_finder.py` finds the first offsets of newly assigned partitions, `topic_watch.py` refreshes metadata and
`committer.py` commits. `poll_boundary.py` connects these tasks with the user's calls. A record counts as processed,
and may be committed, when the user asks for the next record.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

import trio

from ...protocol.errors import BrokerError
from ...protocol.topic_partition import AnyTopicPartition
from ..config import ConsumerConfig
from ..errors import ClientError, ClosedError, ConfigError
from ..lifetime import BackgroundTasks
from ..metrics import Metrics, MetricValues
from ..producer.record_checks import check_offset
from ..wire.cluster import Cluster, PartitionMetadata
from ..wire.group_offsets import GroupMetadata, fetch_committed
from ..wire.offset_lookup import EARLIEST, LATEST, OffsetAndTimestamp, list_offsets
from .argument_checks import check_offsets, check_places, check_record_count, check_times, check_topics
from .classic_protocol_membership import ClassicProtocolMembership
from .committer import Committer
from .consumed_transaction import consumed_transaction
from .consumer_protocol_membership import ConsumerProtocolMembership
from .consumer_record import ConsumerRecord
from .fetched_partition import FetchedBatches
from .fetcher import Fetcher
from .poll_boundary import PollBoundary
from .position_finder import PositionFinder
from .rebalance_listener import RebalanceListener, UserListener
from .subscription import PartitionPosition, Subscription
from .topic_watch import TopicWatch

if TYPE_CHECKING:
    from ..producer.producer import Producer

logger = logging.getLogger(__name__)

Item = TypeVar("Item")

CLOSE_GRACE_SECONDS = 5.0
"""The time limit for the last commit, and again for the user's listener."""
LEAVE_GRACE_SECONDS = 1.0
"""The least time for leaving the group, if the commit and the listener have used CLOSE_GRACE_SECONDS."""
SLICE_SECONDS = 0.001
"""The time that iteration may take before other tasks run: a scheduling step costs more than a record."""


class Consumer:
    """A client that reads records::

        async with Consumer("localhost:9092", group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["topic"])
            async for record in consumer:
                print(record.offset, record.value)

    Keywords are Kafka's consumer keys with underscores (`ConsumerConfig`).
    """

    def __init__(self, bootstrap_servers: str | Iterable[str], **config: object) -> None:
        self.config = ConsumerConfig.from_properties(config)
        self._metrics = Metrics("consumer", self.config.client_id)
        self._cluster = Cluster(bootstrap_servers, self.config, self._metrics)
        self._subscription = Subscription()
        self._boundary = PollBoundary()
        self._fetcher = Fetcher(self._cluster, self._subscription, self.config, self._metrics, self._boundary)
        self._position_finder = PositionFinder(
            self._cluster, self._subscription, self._fetcher, self.config, self._boundary
        )
        self._committer = Committer(self._cluster, self._subscription, self.config)
        self._listener = UserListener(self._committer, self._fetcher, self._position_finder)
        self._topic_watch = TopicWatch(
            self._cluster,
            self._subscription,
            self.config,
            self._boundary,
            on_change=self._subscription_changed,
            on_look=self._check_topics,
        )
        self._yield_at = 0.0
        self._background = BackgroundTasks()
        self._nursery: trio.Nursery | None = None

    async def __aenter__(self) -> Self:
        await self._background.open(self._start_tasks)
        return self

    async def _start_tasks(self, nursery: trio.Nursery) -> None:
        await nursery.start(self._cluster.run)
        self._nursery = nursery
        nursery.start_soon(self._fetcher.run)
        nursery.start_soon(self._position_finder.run)
        nursery.start_soon(self._topic_watch.run)
        if self._committer.is_automatic:
            nursery.start_soon(self._committer.run)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        group = self._committer.group
        deadline = trio.current_time() + CLOSE_GRACE_SECONDS
        if error is None:
            self._subscription.finish_in_hand()
        try:
            if self._committer.is_automatic:
                await self._at_last(lambda: self._committer.commit(self._subscription.processed()), deadline)
            if group is not None:
                group.stop()
                try:
                    await self._at_last(group.give_up_all, trio.current_time() + CLOSE_GRACE_SECONDS)
                finally:
                    await self._at_last(group.leave, max(deadline, trio.current_time() + LEAVE_GRACE_SECONDS))
        finally:
            self._nursery = None
            self._boundary.wake()
            await self._background.close()

    async def _at_last(self, work: Callable[[], Awaitable[None]], deadline: float) -> None:
        """Do some work while closing, even if cancelled, until `deadline` (trio's clock); failures are only logged."""
        with trio.CancelScope(deadline=deadline, shield=True) as scope:
            try:
                await work()
            except (ClientError, BrokerError) as failure:
                logger.info("closing: %s", failure)
        if scope.cancelled_caught:
            logger.info("closing: not finished in time")

    # --- subscription ---

    def subscribe(
        self,
        topics: Iterable[str] | re.Pattern[str],
        *,
        on_assigned: RebalanceListener | None = None,
        on_revoked: RebalanceListener | None = None,
        on_lost: RebalanceListener | None = None,
    ) -> None:
        """Read these topics, or all topics whose whole name matches, and share them with the group.

        The listeners are awaited inside the calls that return records, as in Kafka's consumer: `on_assigned` after
        partitions were assigned, `on_revoked` before they are revoked, also when the consumer closes, and `on_lost`
        (by default `on_revoked`) when they are lost because the group has removed this member. An exception of a
        listener is raised by that call. Raises ClosedError, ConfigError without `group_id`, TypeError unless `topics`
        is an iterable of names or a pattern, InvalidTopicError for a name that no topic can have.
        """
        if self._nursery is None:
            raise ClosedError("the consumer is not open")
        if self.config.group_id is None:
            raise ConfigError("subscribe needs a group_id; use assign without one")
        wanted = check_topics(topics)
        self._listener.listen(on_assigned, on_revoked, on_lost or on_revoked)
        self._boundary.arrive()
        self._topic_watch.subscribe(wanted)
        if self._committer.group is None:
            is_classic = self.config.group_protocol.lower() == "classic"
            self._committer.group = (ClassicProtocolMembership if is_classic else ConsumerProtocolMembership)(
                self._cluster, self._subscription, self.config, self._boundary, self._listener
            )
            self._nursery.start_soon(self._run_group)

    async def _run_group(self) -> None:
        assert self._committer.group is not None
        await self._topic_watch.topics_known()
        await self._committer.group.run()

    def _subscription_changed(self) -> None:
        if self._committer.group is not None:
            self._committer.group.rejoin()

    def _check_topics(self) -> None:
        if self._committer.group is not None and self._committer.group.topics_changed():
            self._committer.group.rejoin()

    def assign(self, partitions: Iterable[AnyTopicPartition]) -> None:
        """Read exactly these (topic, partition)s, without a group's assignment.

        Raises TypeError, ValueError or InvalidTopicError for an invalid partition; the assignment is unchanged then.
        """
        self._subscription.assign(check_places(partitions))
        self._fetcher.drop_stale()
        self._position_finder.wake()

    def assignment(self) -> list[AnyTopicPartition]:
        """Return the assigned partitions; none while the group has removed this member."""
        group = self._committer.group
        return [] if group is not None and group.is_lost else list(self._subscription.positions)

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Continue at `offset`.

        Raises KeyError if the partition is not assigned, TypeError or ValueError for an invalid offset.
        """
        self._subscription.assigned((topic, partition)).seek(check_offset(offset))
        self._fetcher.forget((topic, partition))
        self._fetcher.wake()

    async def seek_to_beginning(self, *partitions: AnyTopicPartition) -> None:
        """Move to the first record of these partitions, or of all assigned ones.

        Raises the errors of `beginning_offsets`.
        """
        for place, offset in (await self.beginning_offsets(partitions or self.assignment())).items():
            self.seek(*place, offset)

    async def seek_to_end(self, *partitions: AnyTopicPartition) -> None:
        """Move behind the last record of these partitions, or of all assigned ones.

        Raises the errors of `end_offsets`.
        """
        for place, offset in (await self.end_offsets(partitions or self.assignment())).items():
            self.seek(*place, offset)

    def pause(self, *partitions: AnyTopicPartition) -> None:
        """Return no records of these partitions until `resume`.

        Raises KeyError, and pauses no partition, if one of the partitions is not assigned.
        """
        for position in self._assigned(partitions):
            position.is_paused = True

    def resume(self, *partitions: AnyTopicPartition) -> None:
        """Undo `pause`. Raises as `pause`."""
        for position in self._assigned(partitions):
            position.is_paused = False
        self._fetcher.wake()
        self._boundary.wake()

    def _assigned(self, places: Iterable[AnyTopicPartition]) -> list[PartitionPosition]:
        return [self._subscription.assigned(place) for place in check_places(places)]

    # --- reading ---

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        if perf_counter() < self._yield_at:
            self._subscription.finish_in_hand()
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            await self._arrive()
            self._yield_at = perf_counter() + SLICE_SECONDS
        while True:
            if self._has_to_meet():
                await self._meet()
            record = self._fetcher.take_one()
            if record is not None:
                return record
            await self._boundary.wait()

    async def poll(self, timeout_ms: int | None = None, max_records: int | None = None) -> list[ConsumerRecord]:
        """Return the next records of any partitions, up to `max_records` (default `max.poll.records`).

        The call waits for at least one record until `timeout_ms` (None: for ever), then returns none; the time limit
        does not interrupt the user's listeners. Raises BrokerError or a ClientError for a permanent failure,
        ClosedError, and TypeError or ValueError unless `max_records` is a positive number.
        """
        limit = self.config.max_poll_records if max_records is None else check_record_count(max_records)
        return await self._poll(lambda: self._fetcher.take(limit), timeout_ms)

    async def poll_batches(self, timeout_ms: int | None = None) -> list[FetchedBatches]:
        """Return all fetched batches as the broker sent them, neither decompressed nor copied, to be forwarded.

        Markers, and with read_committed the batches of aborted transactions, are left out; an entry without batches
        means that only such batches were fetched for the partition. Waits and raises as `poll`; a consumer uses
        either `poll` or `poll_batches`.
        """
        return await self._poll(self._fetcher.take_batches, timeout_ms)

    async def _poll(self, take: Callable[[], list[Item]], timeout_ms: int | None) -> list[Item]:
        deadline = math.inf if timeout_ms is None else trio.current_time() + timeout_ms / 1000
        await self._arrive()
        while True:
            if self._has_to_meet():
                await self._meet()
            if taken := take():
                return taken
            with trio.move_on_at(deadline) as patience:
                await self._boundary.wait()
            if patience.cancelled_caught:
                return []

    @asynccontextmanager
    async def transaction(
        self, producer: Producer, timeout_ms: int | None = None, max_records: int | None = None
    ) -> AsyncIterator[list[ConsumerRecord]]:
        """Poll records, and commit their offsets in one transaction with all that the block sends::

            async with consumer.transaction(producer) as records:
                for record in records:
                    await producer.send("output", transformed(record.value))

        If the block or the commit fails, the transaction is aborted and the next poll returns the records again. The
        same happens, without an exception, if the group has assigned the partitions to another member meanwhile
        (KIP-447). Without records (after `timeout_ms`) there is no transaction. Raises the errors of `poll` and
        `Producer.transaction`, ConfigError without `group_id` or with `enable_auto_commit`.
        """
        if self.config.group_id is None or self.config.enable_auto_commit:
            raise ConfigError("a consumer's transaction needs a group_id and enable_auto_commit=False")
        records = await self.poll(timeout_ms, max_records)
        if not records:
            yield records
            return
        async with consumed_transaction(producer, self._subscription, self._fetcher, self._committer):
            yield records
        self._position_finder.wake()

    def current_lag(self, topic: str, partition: int) -> int | None:
        """Return the number of offsets still to read, by the last fetch (KIP-695); None while the number is unknown.

        Raises KeyError if the partition is not assigned.
        """
        known = self._subscription.assigned((topic, partition))
        end = known.last_stable_offset if self.config.is_read_committed else known.high_watermark
        position = self.position(topic, partition)
        return None if position is None or end < 0 else max(end - position, 0)

    async def _arrive(self) -> None:
        """Note that the user has processed the returned records and asks for more: a checkpoint, before any is
        returned.
        """
        self._subscription.finish_in_hand()
        await trio.lowlevel.checkpoint()
        self._boundary.arrive()

    def _has_to_meet(self) -> bool:
        return self._boundary.is_pending or self._nursery is None or bool(self._fetcher.resets)

    async def _meet(self) -> None:
        """Run the steps that background tasks have left for the user's task. Raises their errors, and ClosedError."""
        if self._nursery is None:
            raise ClosedError("the consumer is not open")
        if self._fetcher.resets:
            self._position_finder.wake()
        if self._boundary.is_pending:
            await self._boundary.meet()

    # --- positions ---

    def position(self, topic: str, partition: int) -> int | None:
        """Return the offset of the next record to be returned; None while it is unknown."""
        known = self._subscription.positions.get((topic, partition))
        return None if known is None else known.offset

    # --- offsets ---

    async def commit(self, offsets: Mapping[AnyTopicPartition, int] | None = None) -> None:
        """Commit these offsets (of the next records to read), or the offsets after all returned records.

        Commits take effect in the order of their calls. Records before these offsets count as processed. Raises
        BrokerError (ILLEGAL_GENERATION and the like after a rebalance), DeadlineExceededError, TypeError or ValueError
        for invalid partitions or offsets.
        """
        offsets = self._subscription.consumed() if offsets is None else check_offsets(offsets)
        self._subscription.note_processed(offsets)
        await self._committer.commit(offsets)

    def group_metadata(self) -> GroupMetadata:
        """Return the group and member of this consumer for `Producer.send_offsets_to_transaction`.

        `transaction` calls both.

        Raises ConfigError without `group_id`, BrokerError UNKNOWN_MEMBER_ID for a consumer that is not in the group
        now.
        """
        return self._committer.group_metadata()

    async def committed(self, *partitions: AnyTopicPartition) -> dict[AnyTopicPartition, int]:
        """Return the group's committed offsets, if there are any, of these partitions or of the assigned ones."""
        if self.config.group_id is None:
            raise ConfigError("committed needs a group_id")
        found = await fetch_committed(
            self._cluster,
            self.config.group_id,
            check_places(partitions) or self.assignment(),
            self.config,
            timeout_ms=self.config.default_api_timeout_ms,
        )
        return {place: entry.offset for place, entry in found.items()}

    async def beginning_offsets(self, partitions: Iterable[AnyTopicPartition]) -> dict[AnyTopicPartition, int]:
        """Return the first offset of each partition. Raises BrokerError or DeadlineExceededError."""
        found = await self._list_offsets(dict.fromkeys(check_places(partitions), EARLIEST))
        return {place: entry.offset for place, entry in found.items() if entry is not None}

    async def end_offsets(self, partitions: Iterable[AnyTopicPartition]) -> dict[AnyTopicPartition, int]:
        """Return the offset after the last record (with read_committed: the last stable offset) of each partition.

        Raises BrokerError or DeadlineExceededError.
        """
        found = await self._list_offsets(dict.fromkeys(check_places(partitions), LATEST))
        return {place: entry.offset for place, entry in found.items() if entry is not None}

    async def offsets_for_times(
        self, timestamps_ms: Mapping[AnyTopicPartition, int]
    ) -> dict[AnyTopicPartition, OffsetAndTimestamp | None]:
        """Return the offset of the first record of each partition that is not older than the given time, or None.

        Raises BrokerError or DeadlineExceededError, TypeError or ValueError for invalid partitions or times.
        """
        return await self._list_offsets(check_times(timestamps_ms))

    async def _list_offsets(
        self, wanted: Mapping[AnyTopicPartition, int]
    ) -> dict[AnyTopicPartition, OffsetAndTimestamp | None]:
        return await list_offsets(
            self._cluster,
            wanted,
            self.config,
            timeout_ms=self.config.default_api_timeout_ms,
            read_committed=self.config.is_read_committed,
        )

    # --- metadata ---

    async def partitions_for(self, topic: str) -> list[PartitionMetadata]:
        """Return the topic's partitions; none if it does not exist. Raises ConnectionLostError."""
        await self._cluster.refresh([topic], allow_auto_create=False)
        metadata = self._cluster.topics.get(topic)
        return metadata.partitions if metadata is not None else []

    async def topics(self) -> list[str]:
        """Return the names of all topics. Raises ConnectionLostError."""
        answer = await self._cluster.refresh(None)
        return sorted(topic.name for topic in answer.topics if topic.name and not topic.error_code)

    def metrics(self) -> MetricValues:
        """Return counters and rates under Kafka's names: `metrics().value("fetch-rate")`; see `MetricValues`."""
        return self._metrics.snapshot()
