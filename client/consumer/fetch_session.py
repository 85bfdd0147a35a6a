"""Incremental fetches (KIP-227), the client's side: a request holds only the changes since the last one to a broker."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import NamedTuple
from uuid import UUID

from ...protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from ...protocol.schema import NO_UUID
from .subscription import TopicPartition

NO_SESSION = 0
FIRST_EPOCH = 0
LAST_EPOCH = -1
FIRST_VERSION_WITH_SESSIONS = 7
FIRST_VERSION_WITH_TOPIC_IDS = 13


class FetchPosition(NamedTuple):
    """The position to fetch from; `leader_epoch` is the metadata's, so that brokers refuse older ones (KIP-320)."""

    offset: int
    leader_epoch: int = -1


class FetchSession:
    """The session with one broker: its id, the epoch of the next request, and the partitions in the broker's
    session.
    """

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = FIRST_EPOCH
        self._remembered: dict[TopicPartition, FetchPosition] = {}
        self._asked: dict[TopicPartition, FetchPosition] = {}
        self._topic_ids: dict[str, UUID] = {}

    def fill(
        self,
        request: FetchRequest,
        positions: Mapping[TopicPartition, FetchPosition],
        partition_max_bytes: int,
        version: int,
        topic_ids: Mapping[str, UUID],
    ) -> None:
        """Put the partitions to fetch (with their offsets and leader epochs) into a request, completely or as a
        difference.

        From FIRST_VERSION_WITH_TOPIC_IDS on topics are identified by id (KIP-516); a session with other ids is
        closed.
        """
        ids = {topic: topic_ids[topic] for topic, _ in positions} if version >= FIRST_VERSION_WITH_TOPIC_IDS else {}
        kept_topics = {topic for topic, _ in self._remembered.keys() & positions.keys()}
        if any(ids.get(topic) != self._topic_ids.get(topic) for topic in kept_topics):
            self.reset()
        self._asked = dict(positions)
        if version < FIRST_VERSION_WITH_SESSIONS or self._id == NO_SESSION:
            changed, forgotten = self._asked, []
            self._topic_ids = ids
        else:
            changed = {place: asked for place, asked in self._asked.items() if self._remembered.get(place) != asked}
            forgotten = sorted(self._remembered.keys() - self._asked.keys())
            self._topic_ids |= ids
        known = self._topic_ids
        request.topics = [
            FetchTopic(
                topic=topic,
                topic_id=known.get(topic, NO_UUID),
                partitions=[
                    FetchPartition(
                        partition=place[1],
                        current_leader_epoch=changed[place].leader_epoch,
                        fetch_offset=changed[place].offset,
                        partition_max_bytes=partition_max_bytes,
                    )
                    for place in places
                ],
            )
            for topic, places in groupby(sorted(changed), key=lambda place: place[0])
        ]
        if version >= FIRST_VERSION_WITH_SESSIONS:
            request.session_id, request.session_epoch = self._id, self._epoch
            request.forgotten_topics_data = [
                ForgottenTopic(
                    topic=topic, topic_id=known.get(topic, NO_UUID), partitions=[place[1] for place in places]
                )
                for topic, places in groupby(forgotten, key=lambda place: place[0])
            ]

    def answered(self, session_id: int) -> None:
        """Note an answer without error: the broker's session now has the partitions of the request, if it keeps a
        session.
        """
        if session_id == NO_SESSION:
            self.reset()
            return
        self._id = session_id
        self._epoch = self._epoch + 1 if self._epoch < 2**31 - 1 else 1
        self._remembered = self._asked

    def reset(self) -> None:
        """Start a new session, after an error of the session or a lost connection."""
        self._id, self._epoch = NO_SESSION, FIRST_EPOCH
        self._remembered = {}
