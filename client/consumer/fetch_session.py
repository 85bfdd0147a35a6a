"""Incremental fetches (KIP-227), the client's side: a request holds only the changes since the last one to a broker."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import NamedTuple
from uuid import UUID

from ...protocol.fetch_session import IncrementalFetchSession
from ...protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from ...protocol.schema import NO_UUID
from ...protocol.topic_partition import AnyTopicPartition

FIRST_VERSION_WITH_SESSIONS = 7
FIRST_VERSION_WITH_TOPIC_IDS = 13


class FetchPosition(NamedTuple):
    """The position to fetch from; `leader_epoch` is the metadata's, so that brokers refuse older ones (KIP-320)."""

    offset: int
    leader_epoch: int = -1


class FetchSession:
    """The session with one broker, whose requests name topics by id where all ids are known (KIP-516)."""

    def __init__(self) -> None:
        self._session = IncrementalFetchSession[AnyTopicPartition, FetchPosition]()
        self._topic_ids: dict[str, UUID] = {}

    def fill(
        self,
        request: FetchRequest,
        positions: Mapping[AnyTopicPartition, FetchPosition],
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
        kept_topics = {topic for topic, _ in self._session.known() & positions.keys()}
        if any(ids.get(topic) != self._topic_ids.get(topic) for topic in kept_topics):
            self.reset()
        self._topic_ids |= ids
        known = self._topic_ids if ids else {}
        changed = sorted(place for place, position in positions.items() if self._session.is_news(place, position))
        request.topics = [
            FetchTopic(
                topic=topic,
                topic_id=known.get(topic, NO_UUID),
                partitions=[
                    FetchPartition(
                        partition=place[1],
                        current_leader_epoch=positions[place].leader_epoch,
                        fetch_offset=positions[place].offset,
                        partition_max_bytes=partition_max_bytes,
                    )
                    for place in places
                ],
            )
            for topic, places in groupby(changed, key=lambda place: place[0])
        ]
        forgotten = sorted(self._session.forget_others(positions))
        if version >= FIRST_VERSION_WITH_SESSIONS:
            self._session.stamp(request)
            request.forgotten_topics_data = [
                ForgottenTopic(
                    topic=topic, topic_id=known.get(topic, NO_UUID), partitions=[place[1] for place in places]
                )
                for topic, places in groupby(forgotten, key=lambda place: place[0])
            ]

    def answered(self, session_id: int) -> None:
        """Note the session id of an answer without an error."""
        self._session.answered(session_id)

    def reset(self) -> None:
        """Start a new session, after an error of the session or a lost connection."""
        self._session.reset()
        self._topic_ids.clear()
