"""The client's side of an incremental fetch session: changed and forgotten partitions, and request epochs."""

from __future__ import annotations

from gregor.protocol.fetch_session import MAX_EPOCH, IncrementalFetchSession
from gregor.protocol.messages.fetch import FetchRequest

Session = IncrementalFetchSession[str, int]


def stamped(session: Session) -> tuple[int, int]:
    request = FetchRequest()
    session.stamp(request)
    return request.session_id, request.session_epoch


def test_only_changed_partitions_are_sent_and_omitted_partitions_are_forgotten() -> None:
    session = Session()
    assert [session.is_news(key, 5) for key in "abc"] == [True] * 3
    session.answered(77)
    assert [session.is_news("a", 5), session.is_news("b", 6)] == [False, True]
    assert session.forget_others("ab") == ["c"]
    assert session.forget_others("ab") == []
    assert sorted(session.known()) == ["a", "b"]
    assert session.is_news("c", 5)


def test_a_lost_or_changed_fetch_session_id_starts_a_full_fetch() -> None:
    for session_id in (0, 78):
        session = Session()
        session.is_news("a", 5)
        session.answered(77)
        assert stamped(session) == (77, 1)
        session.answered(session_id)
        assert stamped(session) == (0, 0)
        assert session.is_news("a", 5)


def test_the_epoch_after_the_largest_is_1() -> None:
    session = Session()
    session.answered(77)
    session._epoch = MAX_EPOCH
    session.answered(77)
    assert stamped(session) == (77, 1)
