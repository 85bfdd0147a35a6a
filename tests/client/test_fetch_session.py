"""Incremental fetches: partitions that are sent again, and topics by their ids."""

from __future__ import annotations

from uuid import UUID

from gregor.client.consumer.fetch_session import FetchPosition, FetchSession
from gregor.protocol.messages.fetch import FetchRequest
from gregor.protocol.schema import NO_UUID
from gregor.protocol.topic_partition import AnyTopicPartition

A, B, OTHER = UUID(int=1), UUID(int=2), UUID(int=3)
IDS = {"a": A, "b": B}


def filled(
    session: FetchSession, offsets: dict[AnyTopicPartition, int], version: int = 13, **ids: UUID
) -> FetchRequest:
    request = FetchRequest()
    positions = {place: FetchPosition(offset, leader_epoch=3) for place, offset in offsets.items()}
    session.fill(request, positions, 1000, version, IDS | ids)
    return request


def asked(request: FetchRequest) -> dict[AnyTopicPartition, int]:
    return {(topic.topic, part.partition): part.fetch_offset for topic in request.topics for part in topic.partitions}


def forgotten(request: FetchRequest) -> list[tuple[str, UUID, list[int]]]:
    return [(topic.topic, topic.topic_id, topic.partitions) for topic in request.forgotten_topics_data]


def test_incremental_fetches_contain_only_changed_partitions() -> None:
    session = FetchSession()
    first = filled(session, {("a", 0): 5, ("a", 1): 5, ("b", 0): 0})
    assert (first.session_id, first.session_epoch) == (0, 0)
    assert [topic.topic_id for topic in first.topics] == [A, B]
    session.answered(77)
    second = filled(session, {("a", 0): 9, ("a", 1): 5})
    assert (second.session_id, second.session_epoch) == (77, 1)
    assert (asked(second), forgotten(second)) == ({("a", 0): 9}, [("b", B, [0])])
    session.answered(77)
    assert asked(filled(session, {("a", 0): 9, ("a", 1): 5})) == {}


def test_a_partition_with_a_new_leader_epoch_is_sent_again() -> None:
    """KIP-320: a broker refuses fetches of an epoch that is over."""
    session, request, place = FetchSession(), FetchRequest(), ("a", 0)
    session.fill(request, {place: FetchPosition(5, leader_epoch=3)}, 1000, 13, IDS)
    assert request.topics[0].partitions[0].current_leader_epoch == 3
    session.answered(77)
    session.fill(request, {place: FetchPosition(5, leader_epoch=4)}, 1000, 13, IDS)
    assert request.topics[0].partitions[0].current_leader_epoch == 4


def test_an_error_or_a_new_topic_id_starts_a_new_fetch_session() -> None:
    session = FetchSession()
    filled(session, {("a", 0): 5})
    session.answered(77)
    session.reset()
    assert filled(session, {("a", 0): 5}).session_id == 0
    session.answered(78)
    again = filled(session, {("a", 0): 5}, a=OTHER)
    assert (again.session_id, asked(again), again.topics[0].topic_id) == (0, {("a", 0): 5}, OTHER)


def test_old_fetch_versions_use_topic_names_and_the_oldest_no_session() -> None:
    session = FetchSession()
    assert filled(session, {("a", 0): 5}, version=12).topics[0].topic_id == NO_UUID
    session.answered(77)
    assert filled(session, {("a", 0): 5}, version=13).session_id == 0, "a session goes by names or by ids, not by both"
    old = filled(FetchSession(), {("a", 0): 5}, version=6)
    assert (old.session_id, old.session_epoch, asked(old)) == (0, -1, {("a", 0): 5})
