"""Incremental fetches of a follower (KIP-227): a request names only partitions whose position has changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from ....protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from .following import Followed

NO_SESSION = 0
FIRST_EPOCH = 0
LAST_EPOCH = 2**31 - 1

PartitionId = tuple[int, int]
"""The topic id as an integer, whose hash is fast, and the partition's number."""
Position = tuple[int, int, int, int]
"""The position of a follower's partition: leader epoch, log end, last record's epoch, log start."""


class Asked(NamedTuple):
    """A partition that a request fetches, perhaps without naming it."""

    followed: Followed
    offset: int
    """The fetch offset."""


class ReplicaFetchSession:
    """A session with one leader: its id, the epoch of the next request, and the positions that the leader has."""

    def __init__(self, partition_max_bytes: int) -> None:
        self._partition_max_bytes = partition_max_bytes
        self._remembered: dict[PartitionId, Position] = {}
        self.reset()

    def reset(self) -> None:
        """Start a new session with the next request."""
        self._id = NO_SESSION
        self._epoch = FIRST_EPOCH
        self._remembered.clear()

    def fill(self, request: FetchRequest, wanted: Iterable[tuple[PartitionId, Followed]]) -> dict[PartitionId, Asked]:
        """Add the changed positions to a request; return all partitions that it fetches."""
        request.session_id, request.session_epoch = self._id, self._epoch
        remembered = self._remembered
        asked: dict[PartitionId, Asked] = {}
        topics: dict[int, list[FetchPartition]] = {}
        for partition_id, followed in wanted:
            position = _position_of(followed)
            asked[partition_id] = Asked(followed, position[1])
            if remembered.get(partition_id) != position:
                remembered[partition_id] = position
                topics.setdefault(partition_id[0], []).append(followed.wanted(self._partition_max_bytes))
        request.topics = [
            FetchTopic(topic_id=UUID(int=topic_id), partitions=partitions) for topic_id, partitions in topics.items()
        ]
        request.forgotten_topics_data = self._forget(asked)
        return asked

    def _forget(self, asked: dict[PartitionId, Asked]) -> list[ForgottenTopic]:
        if len(asked) == len(self._remembered):
            return []
        gone = [partition_id for partition_id in self._remembered if partition_id not in asked]
        for partition_id in gone:
            del self._remembered[partition_id]
        return [ForgottenTopic(topic_id=UUID(int=topic_id), partitions=[index]) for topic_id, index in gone]

    def answered(self, session_id: int) -> None:
        """Continue with the session id of the leader's answer; 0 if the leader keeps no session."""
        if session_id == NO_SESSION or self._id not in (NO_SESSION, session_id):
            self.reset()
            return
        self._id = session_id
        self._epoch = 1 if self._epoch == LAST_EPOCH else self._epoch + 1


def _position_of(followed: Followed) -> Position:
    log = followed.log
    return followed.leader_epoch, log.log_end_offset, log.leader_epoch, log.log_start_offset
