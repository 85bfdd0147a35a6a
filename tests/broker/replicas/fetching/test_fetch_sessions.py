"""Fetch sessions (KIP-227): kinds of requests, changed partitions, and evicted sessions."""

from __future__ import annotations

import pytest

from gregor.broker.replicas.fetching.sessions import EVICTION_AGE_MS, Answers, FetchContext, FetchSessionCache
from gregor.protocol.errors import ErrorCode
from gregor.protocol.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, MAX_EPOCH, NO_SESSION
from gregor.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)

NAMES, IDS = 12, 13
FIRST_VERSION_WITH_REPLICA_STATE = 15


def request(
    *wanted: tuple[str, int, int], session: int = 0, epoch: int = INITIAL_EPOCH, forget: tuple[str, int] | None = None
) -> FetchRequest:
    """Return a request for (topic, partition, offset) triples."""
    topics = [
        FetchTopic(topic=topic, partitions=[FetchPartition(partition=index, fetch_offset=offset)])
        for topic, index, offset in wanted
    ]
    forgotten = [ForgottenTopic(topic=forget[0], partitions=[forget[1]])] if forget else []
    return FetchRequest(session_id=session, session_epoch=epoch, topics=topics, forgotten_topics_data=forgotten)


def answer(context: FetchContext, *, records: bytes = b"", high_watermark: int = 5, error: int = 0) -> Answers:
    """Return the same answer for every requested partition."""
    return [
        (
            fetched,
            PartitionData(
                partition_index=fetched.wanted.partition,
                error_code=error,
                high_watermark=high_watermark,
                log_start_offset=0,
                records=records,
            ),
        )
        for fetched in context.partitions
    ]


def indexes(answers: Answers) -> list[int]:
    return [data.partition_index for _, data in answers]


def opened(
    cache: FetchSessionCache,
    *wanted: tuple[str, int, int],
    now_ms: float = 0,
    follower: int = -1,
    version: int = NAMES,
) -> int:
    asked = request(*wanted)
    if version < FIRST_VERSION_WITH_REPLICA_STATE:
        asked.replica_id = follower
    else:
        asked.replica_state = ReplicaState(replica_id=follower)
    context = cache.context(asked, version, now_ms)
    session_id, _ = context.select(answer(context))
    return session_id


def test_a_sessionless_fetch_returns_all_partitions_and_opens_no_session() -> None:
    cache = FetchSessionCache(10)
    context = cache.context(request(("t", 0, 0), epoch=FINAL_EPOCH), NAMES, 0)
    session_id, answers = context.select(answer(context))
    assert (session_id, indexes(answers), len(cache)) == (NO_SESSION, [0], 0)


def test_an_unchanged_partition_is_omitted_until_its_high_watermark_moves() -> None:
    cache = FetchSessionCache(10)
    session = opened(cache, ("t", 0, 5), ("t", 1, 5))
    quiet = cache.context(request(session=session, epoch=1), NAMES, 0)
    assert indexes(quiet.select(answer(quiet))[1]) == []
    moved = cache.context(request(session=session, epoch=2), NAMES, 0)
    assert indexes(moved.select(answer(moved, high_watermark=6))[1]) == [0, 1]


def test_partitions_with_records_or_errors_are_always_returned() -> None:
    cache = FetchSessionCache(10)
    session = opened(cache, ("t", 0, 0))
    for epoch, news in ((1, {"records": b"x"}), (2, {"records": b"x"}), (3, {"error": 3}), (4, {"error": 3})):
        context = cache.context(request(session=session, epoch=epoch), NAMES, 0)
        assert indexes(context.select(answer(context, **news))[1]) == [0]


def test_a_partition_whose_error_has_ended_is_returned() -> None:
    cache = FetchSessionCache(10)
    session = opened(cache, ("t", 0, 0))
    failing = cache.context(request(session=session, epoch=1), NAMES, 0)
    failing.select(answer(failing, error=3))
    healed = cache.context(request(session=session, epoch=2), NAMES, 0)
    assert indexes(healed.select(answer(healed))[1]) == [0]


def test_partitions_are_added_moved_and_forgotten() -> None:
    cache = FetchSessionCache(10)
    session = opened(cache, ("t", 0, 0), ("t", 1, 0))
    changed = cache.context(request(("t", 0, 7), ("u", 3, 1), session=session, epoch=1, forget=("t", 1)), NAMES, 0)
    assert [(p.topic, p.wanted.partition, p.wanted.fetch_offset) for p in changed.partitions] == [
        ("t", 0, 7),
        ("u", 3, 1),
    ]


def test_partitions_that_had_records_move_to_the_end_of_the_session() -> None:
    cache = FetchSessionCache(10)
    session = opened(cache, ("t", 0, 0), ("t", 1, 0), ("t", 2, 0))
    context = cache.context(request(session=session, epoch=1), NAMES, 0)
    answers = answer(context)
    answers[0][1].records = b"records"
    context.select(answers)
    after = cache.context(request(session=session, epoch=2), NAMES, 0)
    assert [p.wanted.partition for p in after.partitions] == [1, 2, 0]


@pytest.mark.parametrize(
    ("session", "epoch", "version", "error"),
    [
        (4711, 1, NAMES, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (0, 1, NAMES, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (None, 5, NAMES, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (None, -7, NAMES, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (None, 1, IDS, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_an_unexpected_session_id_or_epoch_is_refused(
    session: int | None, epoch: int, version: int, error: ErrorCode
) -> None:
    cache = FetchSessionCache(10)
    known = opened(cache, ("t", 0, 0))
    refused = cache.context(request(session=known if session is None else session, epoch=epoch), version, 0)
    assert refused.error is error
    assert not cache.context(request(session=known, epoch=1), NAMES, 0).error, "the session continues"


def test_epochs_wrap_to_one() -> None:
    cache = FetchSessionCache(10)
    session = opened(cache, ("t", 0, 0))
    cache._sessions[session].epoch = MAX_EPOCH
    assert not cache.context(request(session=session, epoch=MAX_EPOCH), NAMES, 0).error
    assert not cache.context(request(session=session, epoch=1), NAMES, 0).error


@pytest.mark.parametrize("epoch", [INITIAL_EPOCH, FINAL_EPOCH])
def test_a_full_request_closes_the_session_it_names(epoch: int) -> None:
    cache = FetchSessionCache(10)
    session = opened(cache, ("t", 0, 0))
    cache.context(request(("t", 0, 0), session=session, epoch=epoch), NAMES, 0)
    gone = cache.context(request(session=session, epoch=1), NAMES, 0)
    assert gone.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_without_partitions_ends() -> None:
    cache = FetchSessionCache(10)
    session = opened(cache, ("t", 0, 0))
    context = cache.context(request(session=session, epoch=1, forget=("t", 0)), NAMES, 0)
    assert context.select([]) == (NO_SESSION, [])
    assert len(cache) == 0


def test_a_cache_without_slots_opens_no_sessions() -> None:
    assert opened(FetchSessionCache(0), ("t", 0, 0)) == NO_SESSION


def test_a_young_session_keeps_its_slot() -> None:
    cache = FetchSessionCache(1)
    first = opened(cache, ("t", 0, 0))
    assert opened(cache, ("t", 0, 0), now_ms=EVICTION_AGE_MS) == NO_SESSION
    assert not cache.context(request(session=first, epoch=1), NAMES, 0).error


def test_a_session_unused_for_two_minutes_makes_room() -> None:
    cache = FetchSessionCache(1)
    first = opened(cache, ("t", 0, 0), ("t", 1, 0))
    second = opened(cache, ("t", 0, 0), now_ms=EVICTION_AGE_MS + 1)
    assert second not in (NO_SESSION, first)


@pytest.mark.parametrize(("partitions", "gets_in"), [(1, False), (2, False), (3, True)])
def test_an_old_session_in_use_makes_room_only_for_a_larger_one(partitions: int, gets_in: bool) -> None:
    cache = FetchSessionCache(1)
    first = opened(cache, ("t", 0, 0), ("t", 1, 0))
    cache.context(request(session=first, epoch=1), NAMES, EVICTION_AGE_MS)
    wanted = [("u", index, 0) for index in range(partitions)]
    assert (opened(cache, *wanted, now_ms=EVICTION_AGE_MS + 1) != NO_SESSION) is gets_in


@pytest.mark.parametrize("version", [NAMES, FIRST_VERSION_WITH_REPLICA_STATE])
def test_a_follower_gets_the_session_of_a_consumer(version: int) -> None:
    """Even a young and larger one, or else consumers could take all slots from replication."""
    cache = FetchSessionCache(2)
    small, large = opened(cache, ("t", 0, 0), ("t", 1, 0)), opened(cache, *[("u", index, 0) for index in range(3)])
    assert opened(cache, ("t", 0, 0), follower=2, version=version) != NO_SESSION
    assert cache.context(request(session=small, epoch=1), NAMES, 0).error
    assert not cache.context(request(session=large, epoch=1), NAMES, 0).error


@pytest.mark.parametrize(("follower", "gets_in"), [(-1, False), (3, True)])
def test_the_session_of_a_follower_makes_room_only_for_a_larger_one_of_a_follower(follower: int, gets_in: bool) -> None:
    cache = FetchSessionCache(1)
    first = opened(cache, ("t", 0, 0), follower=2)
    wanted = [("u", index, 0) for index in range(2)]
    assert opened(cache, *wanted, follower=3) == NO_SESSION, "the session is young"
    cache.context(request(session=first, epoch=1), NAMES, EVICTION_AGE_MS)
    assert (opened(cache, *wanted, follower=follower, now_ms=EVICTION_AGE_MS + 1) != NO_SESSION) is gets_in


def test_an_unused_session_of_a_follower_makes_room_for_a_consumer() -> None:
    cache = FetchSessionCache(1)
    opened(cache, ("t", 0, 0), ("t", 1, 0), follower=2)
    assert opened(cache, ("t", 0, 0), now_ms=EVICTION_AGE_MS + 1) != NO_SESSION


def test_a_partition_listed_twice_counts_once_with_its_last_position() -> None:
    context = FetchSessionCache(1).context(request(("t", 0, 1), ("t", 0, 9)), NAMES, 0)
    assert [p.wanted.fetch_offset for p in context.partitions] == [9]
