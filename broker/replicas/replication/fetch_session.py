"""Incremental fetches of a follower (KIP-227): a request names only partitions whose position has changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from ....protocol.codec import encode
from ....protocol.fetch_session import IncrementalFetchSession
from ....protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from .copy_steps_cy import FETCH_VERSION, CopySteps
from .following import Followed

SESSION_EPOCH_AT, TOPICS_AT = 17, 21
"""Places in the body of a Fetch; the length of no topics takes one byte."""
PartitionId = tuple[int, int]
"""The topic id as an integer, whose hash is fast, and the partition's number."""
Position = tuple[int, int, int, int]
"""The position of a follower's partition: leader epoch, log end, last record's epoch, log start."""


class Asked(NamedTuple):
    """A partition that a request fetches, perhaps without naming it."""

    followed: Followed
    offset: int
    """The fetch offset."""


class ReplicaFetchSession(IncrementalFetchSession[PartitionId, Position]):
    """A follower's session with one leader."""

    def __init__(self, partition_max_bytes: int) -> None:
        super().__init__()
        self._partition_max_bytes = partition_max_bytes

    def fill(self, request: FetchRequest, wanted: Iterable[tuple[PartitionId, Followed]]) -> dict[PartitionId, Asked]:
        """Add the changed positions to a request; return all partitions that it fetches."""
        self.stamp(request)
        asked: dict[PartitionId, Asked] = {}
        topics: dict[int, list[FetchPartition]] = {}
        for partition_id, followed in wanted:
            position = _position_of(followed)
            asked[partition_id] = Asked(followed, position[1])
            if self.is_news(partition_id, position):
                topics.setdefault(partition_id[0], []).append(followed.wanted(self._partition_max_bytes))
        request.topics = [
            FetchTopic(topic_id=UUID(int=topic_id), partitions=partitions) for topic_id, partitions in topics.items()
        ]
        request.forgotten_topics_data = [
            ForgottenTopic(topic_id=UUID(int=topic_id), partitions=[index])
            for topic_id, index in self.forget_others(asked)
        ]
        return asked

    def continued_in_steps(self, steps: CopySteps) -> None:
        """Take the epoch and the positions of the requests that ``steps`` have sent."""
        moved = [
            (each.partition_id, (each.leader_epoch, each.asked_offset, each.leader_epoch, each.told_log_start_offset))
            for each in steps.moved
        ]
        self.continued(steps.session_epoch, moved)


def around_topics(request: FetchRequest) -> tuple[bytes, bytes]:
    """Return the bytes of a request without topics up to its session id, and those behind its topics."""
    empty = encode(request, FETCH_VERSION)
    return empty[:SESSION_EPOCH_AT], empty[TOPICS_AT + 1 :]


def _position_of(followed: Followed) -> Position:
    log = followed.log
    return followed.leader_epoch, log.log_end_offset, log.leader_epoch, log.log_start_offset
