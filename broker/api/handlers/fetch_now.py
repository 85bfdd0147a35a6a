"""Fetches of followers that are at the log end, which nearly all are: answered late, without a task of their own.

An acks=all record waits for two such fetches of each follower: the one whose answer contains the record, and the next
one, which confirms the copy. A fetch that finds records or an error at once is left unchanged to `fetch.handle_fetch`,
whose answer is the same.
"""

from __future__ import annotations

import logging
from struct import Struct

import trio

from ....protocol.codec import decode, encode
from ....protocol.errors import ErrorCode
from ....protocol.messages.fetch import FetchRequest, FetchResponse
from ...replicas.fetching.reading import FetchLimits, PartitionRead, count_copied, note_all_is_copied, read_partitions
from ...replicas.fetching.sessions import FetchContext, FetchedPartition
from ...replicas.partition import Partition
from ...server.late_answer import LateAnswer
from ..services import Services
from .fetch import FIRST_VERSION_WITH_REPLICA_STATE, READ_UNCOMMITTED, by_topic, find

logger = logging.getLogger(__name__)

NO_TAGGED_FIELDS = 0
REPLICA_STATE_BYTES = 13
REPLICA_STATE_HEAD = bytes((1, 1, REPLICA_STATE_BYTES))
"""The begin of the tagged fields in a follower's request: one tagged field, number 1, of that size."""
ANSWER_HEAD = Struct(">iiB")  # size, correlation id, tags of the header
MOST_IN_MEMORY_BYTES = 64 * 1024
"""Most bytes of records in a late answer, unless its first batch is larger. The follower fetches the rest next."""


def fetch_now(
    services: Services, frame: memoryview, position: int, version: int, correlation_id: int
) -> bytes | LateAnswer | None:
    """Answer the follower's fetch whose body begins at ``position``, now or later; return the frame or a pending
    answer.

    Returns None, with nothing done, for a request that is not of the common kind. Raises DecodeError.
    """
    if version < FIRST_VERSION_WITH_REPLICA_STATE or not _may_be_of_follower(frame, position):
        return None
    request = decode(FetchRequest, frame[position + 1 :], version)
    if request.replica_state.replica_id < 0 or not _is_at_the_ends(request, services):
        return None
    session = services.fetch_sessions.context(request, version, trio.current_time() * 1000)
    if session.error:
        return _framed(FetchResponse(error_code=session.error), version, correlation_id)
    return FollowerFetch(services, request, session, version, correlation_id).answer_or_park()


def _may_be_of_follower(frame: memoryview, position: int) -> bool:
    state_at = len(frame) - 1 - REPLICA_STATE_BYTES
    return (
        position < state_at
        and frame[position] == NO_TAGGED_FIELDS
        and frame[state_at - len(REPLICA_STATE_HEAD) + 1 : state_at + 1] == REPLICA_STATE_HEAD
    )


def _is_at_the_ends(request: FetchRequest, services: Services) -> bool:
    """Return whether this broker leads each partition of the request and the fetch offsets are the log ends."""
    if request.isolation_level != READ_UNCOMMITTED or request.gregor_with_tags or request.rack_id:
        return False
    for topic in request.topics:
        known = services.metadata.topic_by_id(topic.topic_id)
        if known is None:
            return False
        for wanted in topic.partitions:
            partition = services.partitions.find(known.name, wanted.partition)
            if partition is None or partition.leadership is None:
                return False
            if (wanted.current_leader_epoch, wanted.fetch_offset) != (
                partition.leader_epoch,
                partition.log.log_end_offset,
            ):
                return False
    return True


class FollowerFetch:
    """A delayed fetch of a follower, which waits for the partitions of its session.

    It is their `PartitionWaiter`, and a `LateFetch`.
    """

    __slots__ = (
        "_answer",
        "_correlation_id",
        "_found",
        "_is_stale",
        "_is_woken",
        "_limits",
        "_min_bytes",
        "_missing_bytes",
        "_services",
        "_session",
        "_version",
        "deadline",
    )

    def __init__(
        self, services: Services, request: FetchRequest, session: FetchContext, version: int, correlation_id: int
    ) -> None:
        replica = request.replica_state
        self._services = services
        self._session = session
        self._version = version
        self._correlation_id = correlation_id
        self._limits = FetchLimits(
            version=version,
            max_bytes=min(request.max_bytes, services.config.fetch_max_bytes, MOST_IN_MEMORY_BYTES),
            read_committed=False,
            replica_id=replica.replica_id,
            replica_epoch=replica.replica_epoch,
            throttle=services.leader_throttle,
        )
        self.deadline = trio.current_time() + request.max_wait_ms / 1000
        self._min_bytes = min(request.min_bytes, self._limits.max_bytes)
        self._missing_bytes = self._min_bytes
        self._found = self._find()
        self._answer = LateAnswer()
        self._is_woken = False
        self._is_stale = False
        """Whether a partition has changed, so that it must be looked up again."""

    def answer_or_park(self) -> bytes | LateAnswer:
        """Return the frame of the answer, or a pending answer if there is nothing to send yet."""
        is_last = not self._found or self._services.purgatory.is_stopping or trio.current_time() >= self.deadline
        if is_last or self._min_bytes <= 0 or not note_all_is_copied(self._found, self._limits):
            reads = self._read(has_waited=False)
            if is_last or self._suffices(reads):
                return self._answer_of(reads)
        self._watch()
        self._services.purgatory.late.park(self)
        return self._answer

    # --- as a waiter of partitions

    def appended(self, size_bytes: int) -> None:
        self._missing_bytes -= size_bytes
        if self._missing_bytes <= 0:
            self._wake()

    def changed(self) -> None:
        self._is_stale = True
        self._wake()

    def _wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._services.purgatory.late.wake(self)

    def _watch(self) -> None:
        for _, partition in self._found:
            if isinstance(partition, Partition):
                partition.watch(self, is_follower=True)

    def _unwatch(self) -> None:
        for _, partition in self._found:
            if isinstance(partition, Partition):
                partition.unwatch(self)

    # --- as a delayed fetch

    def look_again(self, *, is_last: bool) -> bool:
        """Answer if enough records are available or this is the last attempt; return whether it answered."""
        self._is_woken = False
        try:
            if self._is_stale:
                self._is_stale = False
                self._unwatch()
                self._found = self._find()
                self._watch()
            reads = self._read(has_waited=True)
            if not is_last and not self._suffices(reads):
                return False
            frame = self._answer_of(reads)
        except Exception:
            logger.exception("a fetch of broker %d failed", self._limits.replica_id)
            frame = _framed(
                FetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR), self._version, self._correlation_id
            )
        self._unwatch()
        self._answer.give(frame)
        return True

    def _find(self) -> list[tuple[FetchedPartition, Partition | ErrorCode]]:
        return [(fetched, find(fetched, self._services, self._version)) for fetched in self._session.partitions]

    def _read(self, *, has_waited: bool) -> list[PartitionRead]:
        reads = read_partitions(self._found, self._limits, has_waited=has_waited)
        for read in reads:
            if read.partition is not None:
                self._services.metrics.count_fetch_request(read.fetched.topic, read.answer.error_code)
        return reads

    def _suffices(self, reads: list[PartitionRead]) -> bool:
        """Return whether these reads are enough for an answer; release them if not."""
        self._missing_bytes = self._min_bytes - sum(read.size_bytes for read in reads)
        if self._missing_bytes <= 0 or any(read.answers_at_once for read in reads):
            return True
        for read in reads:
            read.release()
        return False

    def _answer_of(self, reads: list[PartitionRead]) -> bytes:
        count_copied(reads, self._limits)
        for read in reads:
            if read.records is not None:
                read.answer.records = read.records.read()
                read.release()
        session_id, selected = self._session.select([(read.fetched, read.answer) for read in reads])
        response = FetchResponse(session_id=session_id, responses=by_topic(selected))
        return _framed(response, self._version, self._correlation_id)


def _framed(response: FetchResponse, version: int, correlation_id: int) -> bytes:
    body = encode(response, version)
    return ANSWER_HEAD.pack(ANSWER_HEAD.size - 4 + len(body), correlation_id, NO_TAGGED_FIELDS) + body
