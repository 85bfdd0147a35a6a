"""The fetching tasks of followers: one for each leader and `num.replica.fetchers` number, each with its own connection.

A task has one Fetch in progress, which is delayed at the leader until any of its partitions changes. So following
hundreds of partitions of one leader costs both brokers a single delayed request.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar
from zlib import crc32

import trio

from ....protocol.apis import ApiKey
from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData, ReplicaState
from ....protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ....protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ....protocol.schema import NO_UUID, Message
from ....storage.log.leader_epochs import UNDEFINED_OFFSET
from ...config import BrokerConfig
from ...peers.peer_connection import PeerConnection
from ...peers.peers import Peers
from ...peers.stepwise_reading import Watcher
from ...server.meter import Meter
from ..partition import Partition
from .copy_steps_cy import FETCH_VERSION, CopiedPartition, CopySteps
from .fetch_lane import FetchLane, GivenUpError, NewSteps
from .fetch_session import Asked, PartitionId, ReplicaFetchSession, around_topics
from .following import Followed, Outcome
from .throttle import ReplicationThrottle

logger = logging.getLogger(__name__)

Response = TypeVar("Response", bound=Message)

LIST_OFFSETS_VERSION, EPOCH_VERSION = 9, 4
"""Versions that every possible broker of the cluster supports."""
EARLIEST, LATEST = -2, -1
TURN_BYTES = 128 * 1024
THROTTLED_PAUSE_S = 0.1
"""Pause between two checks whether the throttle allows fetches again."""
FIRST_PAUSE_S = 0.02
"""Pause after a first failure; each further failure doubles it, up to `replica.fetch.backoff.ms`."""


@dataclass(frozen=True, slots=True)
class CopyingBroker:
    """A record of the fetching broker's parts."""

    node_id: int
    epoch: Callable[[], int]
    """Returns the broker epoch: leaders add only a broker with the registered epoch to the in-sync set."""
    config: BrokerConfig
    peers: Peers
    throttle: ReplicationThrottle
    now_ms: Callable[[], int]
    watcher: Callable[[], Watcher | None] = lambda: None
    """Returns the watcher of this broker's sockets, None before its listeners are open."""


class ReplicaFetcher:
    """A task that copies partitions from one leader until cancelled (Kafka `ReplicaFetcherThread`)."""

    def __init__(self, leader_id: int, number: int, here: CopyingBroker) -> None:
        self._leader_id = leader_id
        self._here = here
        self._lane = FetchLane(f"broker-{here.node_id}-fetcher-{number}", here.peers.security, here.watcher)
        self._followed: dict[PartitionId, Followed] = {}
        self._session = ReplicaFetchSession(here.config.replica_fetch_max_bytes)
        self.requests = Meter()
        """The Fetch requests of this task."""
        self._failures = 0
        self._news = trio.Event()
        self._has_records = False
        """Whether the latest answer had partitions, as the next one probably has."""
        self._steps: CopySteps | None = None
        """The steps of the Fetch in progress."""

    def add(self, followed: Followed) -> None:
        """Copy a partition from now on, instead of its previous `Followed`.

        A fetch that is delayed at the leader is cancelled with its connection, as the leader would answer the next one
        only after it: a new leader cannot acknowledge records to producers before its followers have fetched.
        """
        self._followed[_id_of(followed.partition)] = followed
        self._news.set()
        self._lane.give_up()

    def remove(self, partition: Partition) -> None:
        """Stop copying a partition."""
        self._followed.pop(_id_of(partition), None)
        if self._steps is not None:
            self._steps.is_over = True

    @property
    def max_lag(self) -> int:
        """The largest lag of a partition, in records."""
        return max((followed.lag for followed in self._followed.values()), default=0)

    async def run(self) -> None:
        """Copy partitions until cancelled, then close the connection."""
        try:
            await self._copy()
        finally:
            self._lane.close()

    async def _copy(self) -> None:
        while True:
            self._news = trio.Event()
            now = trio.current_time()
            due = {key: followed for key, followed in self._followed.items() if followed.wait_until <= now}
            throttled = self._take_throttled(due)
            if due:
                try:
                    await self._fetch(due)
                except GivenUpError:
                    self._session.reset()
            else:
                waits = [followed.wait_until for followed in self._followed.values()]
                with trio.move_on_at(now + THROTTLED_PAUSE_S if throttled else min(waits, default=math.inf)):
                    await self._news.wait()

    def _take_throttled(self, due: dict[PartitionId, Followed]) -> bool:
        """Remove throttled partitions from ``due`` (Kafka `shouldFollowerThrottle`); return whether there are any."""
        throttle = self._here.throttle
        if not (throttle.is_active and throttle.is_exceeded):
            return False
        waiting = [
            key
            for key, followed in due.items()
            if not followed.is_caught_up and throttle.is_throttled(followed.log.topic, followed.log.partition)
        ]
        for key in waiting:
            del due[key]
        return bool(waiting)

    async def _fetch(self, due: dict[PartitionId, Followed]) -> None:
        """Send one Fetch and apply its answer. Raises GivenUpError."""
        request = self._new_request()
        asked = self._session.fill(request, due.items())
        self.requests.record()
        self._steps = None
        takes_steps = self._has_records and len(due) == len(self._followed) and not self._here.throttle.is_active
        self._has_records = False
        try:
            new_steps = partial(self._begin_steps, asked) if takes_steps else None
            answer = await self._ask(request, FetchResponse, FETCH_VERSION, new_steps)
            if answer.error_code:
                raise BrokerError(ErrorCode(answer.error_code))
        except BrokerError as error:
            self._session.reset()
            level = logging.DEBUG if self._failures else logging.INFO
            logger.log(level, "copying from broker %d: %s", self._leader_id, error.message or error.code.name)
            await self._pause()
            return
        self._failures = 0
        self._end_steps(asked)
        self._session.answered(answer.session_id)
        self._has_records = bool(answer.responses)
        for topic in answer.responses:
            for data in topic.partitions:
                key = (topic.topic_id.int, data.partition_index)
                of_partition = asked.get(key)
                if of_partition is not None and of_partition.followed is self._followed.get(key):
                    await self._take(of_partition.followed, data, of_partition.offset)

    def _new_request(self) -> FetchRequest:
        config = self._here.config
        return FetchRequest(
            replica_state=ReplicaState(replica_id=self._here.node_id, replica_epoch=self._here.epoch()),
            max_wait_ms=config.replica_fetch_wait_max_ms,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            gregor_with_tag_runs=True,
        )

    def _begin_steps(self, asked: dict[PartitionId, Asked], connection: PeerConnection) -> CopySteps:
        """Return the steps for the answer to the request in progress, and for the requests that follow it."""
        session_id, session_epoch = self._session.stamped
        partitions = [
            CopiedPartition(followed, topic_id, index, self._here.config.replica_fetch_max_bytes)
            for (topic_id, index), (followed, _) in asked.items()
        ]
        empty = self._new_request()
        self._session.stamp(empty)
        before_epoch, after_topics = around_topics(empty)
        self._steps = CopySteps(
            connection.space,
            partitions,
            session_id=session_id,
            session_epoch=session_epoch,
            before_epoch=connection.header_tail(ApiKey.FETCH, FETCH_VERSION) + before_epoch,
            after_topics=after_topics,
            now_ms=self._here.now_ms,
        )
        return self._steps

    def _end_steps(self, asked: dict[PartitionId, Asked]) -> None:
        """Take over what the steps have changed: the session, and the positions that the leader knows."""
        steps, self._steps = self._steps, None
        if steps is None or not steps.answer_count:
            return
        self.requests.record(steps.answer_count)
        self._session.continued_in_steps(steps)
        for moved in steps.moved:
            asked[moved.partition_id] = Asked(moved.followed, moved.asked_offset)

    async def _pause(self) -> None:
        """Wait after a failed request, longer each time, unless there is a new partition to copy."""
        with trio.move_on_after(self._pause_s(self._failures)):
            await self._news.wait()
        self._failures += 1

    def _pause_s(self, failures: int) -> float:
        return min(FIRST_PAUSE_S * 2.0 ** min(failures, 10), self._here.config.replica_fetch_backoff_ms / 1000)

    async def _take(self, followed: Followed, data: PartitionData, asked_offset: int) -> None:
        try:
            if followed.lacks_epochs(data.records):
                followed.epoch_starts = await self._epoch_starts(followed)
            outcome = followed.take(data, asked_offset)
            if isinstance(data.records, bytes | memoryview):
                self._here.throttle.record(followed.log.topic, followed.log.partition, len(data.records))
            if outcome is Outcome.OUT_OF_RANGE:
                await self._find_range(followed)
        except BrokerError as error:
            level = logging.DEBUG if followed.failures else logging.INFO
            logger.log(level, "copying %s-%d: %s", followed.log.topic, followed.log.partition, error)
            outcome = Outcome.WAIT
        if outcome is Outcome.WAIT:
            followed.wait_until = trio.current_time() + self._pause_s(followed.failures)
            followed.failures += 1
        else:
            followed.failures = 0
        if isinstance(data.records, bytes | memoryview) and len(data.records) > TURN_BYTES:
            # Let other tasks run before the next partition.
            await trio.lowlevel.checkpoint()

    # --- rare requests ---

    async def _find_range(self, followed: Followed) -> None:
        start_offset = await self._listed_offset(followed, EARLIEST)
        end_offset = await self._listed_offset(followed, LATEST)
        if followed.is_current:
            followed.continue_within(start_offset, end_offset)

    async def _listed_offset(self, followed: Followed, timestamp: int) -> int:
        """Return the start or end offset of the leader's log. Raises BrokerError."""
        partition = followed.partition
        wanted = ListOffsetsPartition(
            partition_index=partition.index, current_leader_epoch=followed.leader_epoch, timestamp=timestamp
        )
        request = ListOffsetsRequest(
            replica_id=self._here.node_id, topics=[ListOffsetsTopic(name=partition.topic, partitions=[wanted])]
        )
        answer = await self._ask(request, ListOffsetsResponse, LIST_OFFSETS_VERSION)
        found = answer.topics[0].partitions[0]
        if found.error_code:
            raise BrokerError(ErrorCode(found.error_code))
        return found.offset

    async def _epoch_starts(self, followed: Followed) -> list[tuple[int, int]]:
        """Return (start offset, leader epoch) of all epochs of the leader that end above the copy's end, ascending.

        The leader returns the end of an epoch, which is the start of the next one. Raises BrokerError.
        """
        starts: list[tuple[int, int]] = []
        epoch = followed.leader_epoch
        while epoch > 0:
            earlier, end_offset = await self._end_of_epoch(followed, epoch - 1)
            if end_offset == UNDEFINED_OFFSET or end_offset <= followed.log.log_end_offset:
                break
            starts.append((end_offset, epoch))
            epoch = min(earlier, epoch - 1)
        return [(0, epoch), *reversed(starts)]

    async def _end_of_epoch(self, followed: Followed, epoch: int) -> tuple[int, int]:
        partition = followed.partition
        wanted = OffsetForLeaderPartition(
            partition=partition.index, current_leader_epoch=followed.leader_epoch, leader_epoch=epoch
        )
        topic = OffsetForLeaderTopic(topic=partition.topic, partitions=[wanted])
        request = OffsetForLeaderEpochRequest(replica_id=self._here.node_id, topics=[topic])
        answer = await self._ask(request, OffsetForLeaderEpochResponse, EPOCH_VERSION)
        found = answer.topics[0].partitions[0]
        if found.error_code:
            raise BrokerError(ErrorCode(found.error_code))
        return found.leader_epoch, found.end_offset

    async def _ask(
        self, request: Message, response: type[Response], version: int, new_steps: NewSteps | None = None
    ) -> Response:
        return await self._lane.ask(
            self._here.peers.address(self._leader_id),
            request,
            response,
            version=version,
            timeout_s=self._here.config.replica_socket_timeout_ms / 1000,
            new_steps=new_steps,
        )


class ReplicaFetchers:
    """A set of all fetching tasks of one broker."""

    def __init__(self, here: CopyingBroker) -> None:
        self._here = here
        self._fetchers: dict[tuple[int, int], ReplicaFetcher] = {}
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the fetching tasks until cancelled."""
        async with trio.open_nursery() as self._nursery:
            for fetcher in self._fetchers.values():
                self._nursery.start_soon(fetcher.run)
            task_status.started()
            await trio.sleep_forever()

    @property
    def max_lag(self) -> int:
        """The largest lag of a followed partition, in records."""
        return max((fetcher.max_lag for fetcher in self._fetchers.values()), default=0)

    @property
    def least_fetch_rate(self) -> float:
        """The lowest rate of the tasks, in Fetch requests per second, 0 without tasks."""
        return min((fetcher.requests.per_second() for fetcher in self._fetchers.values()), default=0.0)

    def follow(self, partition: Partition, leader_id: int) -> None:
        """Copy a partition, which has become a follower, from this leader only."""
        self.forget(partition)
        followed = Followed(partition, partition.leader_epoch)
        try:
            followed.begin()
        except BrokerError as error:
            logger.error("%s-%d cannot be copied: %s", partition.topic, partition.index, error)
            return
        number = crc32(f"{partition.topic}-{partition.index}".encode()) % self._here.config.num_replica_fetchers
        fetcher = self._fetchers.get((leader_id, number))
        if fetcher is None:
            fetcher = self._fetchers[leader_id, number] = ReplicaFetcher(leader_id, number, self._here)
            if self._nursery is not None:
                self._nursery.start_soon(fetcher.run)
        fetcher.add(followed)

    def forget(self, partition: Partition) -> None:
        """Stop copying a partition."""
        for fetcher in self._fetchers.values():
            fetcher.remove(partition)


def _id_of(partition: Partition) -> PartitionId:
    return (partition.log.topic_id or NO_UUID).int, partition.index
