"""Incremental fetch sessions (KIP-227): the broker stores a client's partitions, and answers only with changes.

The kinds of Fetch requests, by session id and epoch (Kafka: FetchManager.newContext):

- *sessionless*: epoch -1, and every request before v7: all partitions are in the request, all go into the answer; a
  session that is named is closed.
- *full*: epoch 0: as before, and a new session is opened if there is room.
- *incremental*: any other epoch, which must be the session's next: the request only lists changes, the answer only
  partitions with news.
- *refused*: the session does not exist, or the epoch is not its next, or names and topic ids got mixed.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable
from typing import Protocol
from uuid import UUID

from ....protocol.errors import ErrorCode
from ....protocol.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, MAX_EPOCH, NO_SESSION
from ....protocol.messages.fetch import FetchPartition, FetchRequest, PartitionData, ReplicaState
from .partitions_at_rest import PartitionsAtRest

FIRST_VERSION_WITH_TOPIC_IDS = 13
FIRST_VERSION_WITH_REPLICA_STATE = 15
EVICTION_AGE_MS = 120_000
"""A session unused for this time may be evicted by any other (Kafka: MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS)."""

PartitionKey = tuple[str | UUID, int]


class FetchedPartition:
    """A partition of a request or a session, with the state that the client already has."""

    __slots__ = ("key", "known_high_watermark", "known_log_start_offset", "topic", "topic_id", "wanted")

    def __init__(self, topic: str, topic_id: UUID, wanted: FetchPartition, *, uses_topic_ids: bool) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.wanted = wanted
        self.key: PartitionKey = (topic_id if uses_topic_ids else topic, wanted.partition)
        self.known_high_watermark = -1
        self.known_log_start_offset = -1

    def learn(self, answer: PartitionData) -> bool:
        """Store the state in ``answer``; return whether it contains changes or records.

        The rule is that of Kafka's CachedPartition.maybeUpdateResponseData.
        """
        is_news = answer_has_records(answer) or answer.preferred_read_replica >= 0
        is_news = is_news or answer.diverging_epoch.epoch >= 0
        if self.known_high_watermark != answer.high_watermark:
            self.known_high_watermark = answer.high_watermark
            is_news = True
        if self.known_log_start_offset != answer.log_start_offset:
            self.known_log_start_offset = answer.log_start_offset
            is_news = True
        if answer.error_code:
            # When the error ends the client must get an answer, so the high watermark counts as unknown.
            self.known_high_watermark = -1
            is_news = True
        return is_news


def answer_has_records(answer: PartitionData) -> bool:
    """Return whether a partition's answer has any bytes of records."""
    records = answer.records
    if records is None:
        return False
    return (records.size if hasattr(records, "size") else len(records)) > 0


Answers = list[tuple[FetchedPartition, PartitionData]]


class FetchContext:
    """A list of the partitions of one request, in the order to read them; this class itself is *sessionless*."""

    error = ErrorCode.NONE
    session_id = NO_SESSION
    """The session id of the answer if no partition is answered."""
    at_rest: PartitionsAtRest | None = None
    """The partitions of the session, if none has changed since the last Fetch."""
    session: FetchSession | None = None
    """The session of an incremental request."""

    def __init__(self, partitions: Collection[FetchedPartition]) -> None:
        self.partitions = partitions

    @property
    def is_idle(self) -> bool:
        """Whether the session's last answer had no partitions, and the request names none."""
        return False

    def rest(self, at_rest: PartitionsAtRest) -> None:
        """Keep the partitions of the session for the next Fetch: they need not be looked at until one changes."""
        self.at_rest = at_rest

    def select(self, answers: Answers) -> tuple[int, Answers]:
        """Return the session id for the answer, and those of the ``answers`` to send."""
        return NO_SESSION, answers


class RefusedFetch(FetchContext):
    """A request that does not fit its session; the answer has ``error`` and no partitions."""

    def __init__(self, error: ErrorCode) -> None:
        super().__init__(())
        self.error = error


class FullFetch(FetchContext):
    """A request with all partitions in the answer, which become a session if the cache has room."""

    def __init__(
        self,
        cache: FetchSessionCache,
        partitions: Collection[FetchedPartition],
        *,
        uses_topic_ids: bool,
        is_follower: bool,
        now_ms: float,
    ) -> None:
        super().__init__(partitions)
        self._cache = cache
        self._uses_topic_ids = uses_topic_ids
        self._is_follower = is_follower
        self._now_ms = now_ms

    def select(self, answers: Answers) -> tuple[int, Answers]:
        for partition, answer in answers:
            partition.learn(answer)
        session_id = self._cache.open(
            self.partitions, uses_topic_ids=self._uses_topic_ids, is_follower=self._is_follower, now_ms=self._now_ms
        )
        return session_id, answers


class IncrementalFetch(FetchContext):
    """A request that reads all partitions of its session; the answer has those with changes."""

    def __init__(self, session: FetchSession, *, names_none: bool) -> None:
        super().__init__(list(session.partitions.values()))
        self._session = self.session = session
        self._names_none = names_none
        self.session_id = session.session_id
        self.at_rest = session.at_rest

    @property
    def is_idle(self) -> bool:
        return self._names_none and self._session.has_idled

    def rest(self, at_rest: PartitionsAtRest) -> None:
        self.at_rest = self._session.at_rest = at_rest
        if self._session.lane is not None:
            self._session.lane.end()

    def select(self, answers: Answers) -> tuple[int, Answers]:
        news = [(partition, answer) for partition, answer in answers if partition.learn(answer)]
        self._session.has_idled = not news
        for partition, answer in news:
            if answer_has_records(answer) and partition.key in self._session.partitions:
                # Move the partition to the end, so that with a small max_bytes every partition gets its turn.
                del self._session.partitions[partition.key]
                self._session.partitions[partition.key] = partition
        return self._session.session_id, news


class SessionLane(Protocol):
    """A lane for usual requests of a session (`follower_lane_cy.FollowerLane`), as its other requests see the lane."""

    def looked(self) -> None:
        """Note that all partitions were looked at."""

    def renew(self, topic_id: bytes, index: int) -> None:
        """Note that a request outside of the lane has named a partition of the session."""

    def end(self) -> None:
        """Stop watching, and answer the waiting Fetch."""


class FetchSession:
    """A session's partitions of one client, in the order to read them."""

    __slots__ = (
        "at_rest",
        "created_ms",
        "epoch",
        "has_idled",
        "is_follower",
        "lane",
        "partitions",
        "session_id",
        "used_ms",
        "uses_topic_ids",
    )

    def __init__(
        self,
        session_id: int,
        partitions: Iterable[FetchedPartition],
        *,
        uses_topic_ids: bool,
        is_follower: bool,
        now_ms: float,
    ) -> None:
        self.session_id = session_id
        self.partitions = {partition.key: partition for partition in partitions}
        self.uses_topic_ids = uses_topic_ids
        self.is_follower = is_follower
        """Whether another broker opened the session (Kafka: `FetchSession.privileged`)."""
        self.epoch = INITIAL_EPOCH + 1
        self.created_ms = now_ms
        self.used_ms = now_ms
        self.at_rest: PartitionsAtRest | None = None
        self.lane: SessionLane | None = None
        """Answers usual requests of a follower's session."""
        self.has_idled = False
        """Whether the last answer had no partitions."""

    def close(self) -> None:
        """Watch no partition any more."""
        self.stir()
        if self.lane is not None:
            self.lane.end()

    def stir(self) -> None:
        """Look at each partition again from the next Fetch on."""
        if self.at_rest is not None:
            self.at_rest.end()
            self.at_rest = None

    def update(self, request: FetchRequest) -> None:
        """Apply the additions, changes and removals of an incremental request."""
        lane = self.lane
        has_others = bool(request.forgotten_topics_data)
        for partition in requested_partitions(request, self.uses_topic_ids):
            known = self.partitions.get(partition.key)
            if known is None:
                self.partitions[partition.key] = partition
                has_others = True
            else:
                known.wanted = partition.wanted
                if lane is not None:
                    lane.renew(partition.topic_id.bytes, partition.wanted.partition)
        if lane is not None:
            lane.looked()
            if has_others:
                lane.end()
        for topic in request.forgotten_topics_data:
            name = topic.topic_id if self.uses_topic_ids else topic.topic
            for index in topic.partitions:
                self.partitions.pop((name, index), None)


def sender_of(request: FetchRequest, version: int) -> ReplicaState:
    """Return the id and the epoch of the follower that sent a request; the id of a consumer is negative (KIP-903)."""
    if version < FIRST_VERSION_WITH_REPLICA_STATE:
        return ReplicaState(replica_id=request.replica_id)
    return request.replica_state


def requested_partitions(request: FetchRequest, uses_topic_ids: bool) -> list[FetchedPartition]:
    """Return the partitions in a request; a repeated partition counts once, with its last position."""
    partitions = [
        FetchedPartition(topic.topic, topic.topic_id, wanted, uses_topic_ids=uses_topic_ids)
        for topic in request.topics
        for wanted in topic.partitions
    ]
    if len(partitions) == 1:
        return partitions
    return list({partition.key: partition for partition in partitions}.values())


class FetchSessionCache:
    """A cache of all fetch sessions of a broker, at most ``max.incremental.fetch.session.cache.slots``.

    A new session evicts one that was not used for two minutes, else one that is older and has fewer partitions; else
    the client gets no session. A follower's session counts as larger than any of a consumer, and may evict a
    consumer's at any age: replication must not wait for consumers (Kafka: FetchSessionCacheShard.tryEvict).
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._sessions: dict[int, FetchSession] = {}  # least recently used first
        self._random = random.SystemRandom()
        self.eviction_count = 0
        """Sessions that were closed to make room for others."""

    @property
    def partition_count(self) -> int:
        """The number of partitions in all sessions."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def __len__(self) -> int:
        return len(self._sessions)

    def partitions_of(self, session_id: int) -> Collection[FetchedPartition]:
        """Return the partitions of a session; none if there is no such session."""
        session = self._sessions.get(session_id)
        return () if session is None else session.partitions.values()

    def context(self, request: FetchRequest, version: int, now_ms: float) -> FetchContext:
        """Return the context of ``request``; close, advance or update its session."""
        uses_topic_ids = version >= FIRST_VERSION_WITH_TOPIC_IDS
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            closed = self._sessions.pop(request.session_id, None)
            if closed is not None:
                closed.close()
            partitions = requested_partitions(request, uses_topic_ids)
            if request.session_epoch == FINAL_EPOCH:
                return FetchContext(partitions)
            is_follower = sender_of(request, version).replica_id >= 0
            return FullFetch(self, partitions, uses_topic_ids=uses_topic_ids, is_follower=is_follower, now_ms=now_ms)
        session = self._sessions.get(request.session_id)
        if session is None:
            return RefusedFetch(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            return RefusedFetch(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            return RefusedFetch(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        return self._advance(session, request, now_ms)

    def _advance(self, session: FetchSession, request: FetchRequest, now_ms: float) -> FetchContext:
        names_none = not (request.topics or request.forgotten_topics_data)
        if not names_none or (session.at_rest is not None and session.at_rest.has_ended):
            session.stir()
        session.update(request)
        del self._sessions[session.session_id]
        if not session.partitions:
            return FetchContext(requested_partitions(request, session.uses_topic_ids))
        self._sessions[session.session_id] = session
        session.used_ms = now_ms
        session.epoch = 1 if session.epoch == MAX_EPOCH else session.epoch + 1
        return IncrementalFetch(session, names_none=names_none)

    def open(
        self, partitions: Collection[FetchedPartition], *, uses_topic_ids: bool, is_follower: bool, now_ms: float
    ) -> int:
        """Open a session and return its id, or `NO_SESSION` if there is no room."""
        if not self._make_room(len(partitions), now_ms, is_follower=is_follower):
            return NO_SESSION
        session_id = self._random.randrange(1, 2**31)
        while session_id in self._sessions:
            session_id = self._random.randrange(1, 2**31)
        self._sessions[session_id] = FetchSession(
            session_id, partitions, uses_topic_ids=uses_topic_ids, is_follower=is_follower, now_ms=now_ms
        )
        return session_id

    def _make_room(self, partition_count: int, now_ms: float, *, is_follower: bool) -> bool:
        if len(self._sessions) < self._slots:
            return True
        if not self._sessions:
            return False
        evicted = next(iter(self._sessions.values()))
        if now_ms - evicted.used_ms <= EVICTION_AGE_MS:
            evictable = [
                session
                for session in self._sessions.values()
                if now_ms - session.created_ms > EVICTION_AGE_MS or (is_follower and not session.is_follower)
            ]
            if not evictable:
                return False
            evicted = min(evictable, key=lambda session: (*_worth(session), session.session_id))
            if _worth(evicted) >= (is_follower, partition_count):
                return False
        evicted.close()
        del self._sessions[evicted.session_id]
        self.eviction_count += 1
        return True


def _worth(session: FetchSession) -> tuple[bool, int]:
    """Return by what sessions are compared when one must make room (Kafka: `EvictableKey`)."""
    return session.is_follower, len(session.partitions)
