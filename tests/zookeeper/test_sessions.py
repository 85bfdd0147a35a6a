"""Sessions: their timeouts, and their move from one connection to another."""

from __future__ import annotations

import pytest

from gregor.zookeeper.limits import Limits
from gregor.zookeeper.sessions import Session, Sessions

LIMITS = Limits(tick_ms=1000, min_session_timeout_ms=2000, max_session_timeout_ms=20_000, max_sessions=3)


def opened(sessions: Sessions, timeout_ms: int = 5000, now_ms: int = 0) -> Session:
    session = sessions.open(timeout_ms, now_ms)
    assert session is not None
    return session


@pytest.mark.parametrize(("asked", "given"), [(-5, 2000), (0, 2000), (2000, 2000), (9999, 9999), (1 << 30, 20_000)])
def test_timeouts_are_negotiated(asked: int, given: int) -> None:
    assert opened(Sessions(LIMITS), asked).timeout_ms == given


def test_a_session_expires_at_the_first_tick_after_its_timeout() -> None:
    sessions = Sessions(LIMITS)
    session = opened(sessions, 5000, now_ms=1500)
    assert sessions.take_expired(6999) == []
    assert sessions.is_open(session)
    assert sessions.take_expired(7000) == [session]
    assert not sessions.is_open(session)
    assert sessions.take_expired(99_000) == []


def test_requests_extend_a_session_and_a_closed_session_does_not_expire() -> None:
    sessions = Sessions(LIMITS)
    first, second = opened(sessions), opened(sessions)
    sessions.touch(first, 5500)
    sessions.close(second)
    sessions.touch(second, 5500)
    sessions.close(second)
    assert sessions.take_expired(10_999) == []
    assert sessions.take_expired(11_000) == [first]
    assert len(sessions) == 0


def test_a_session_with_a_request_in_progress_does_not_expire() -> None:
    sessions = Sessions(LIMITS)
    session = opened(sessions)
    session.is_busy = True
    assert sessions.take_expired(6000) == []
    session.is_busy = False
    assert sessions.take_expired(11_000) == []
    assert sessions.take_expired(12_000) == [session]


def test_only_the_password_opens_a_session_again() -> None:
    sessions = Sessions(LIMITS)
    session = opened(sessions)
    assert sessions.reopen(session.id, b"", 5000, 0) is None
    assert sessions.reopen(session.id, bytes(16), 5000, 0) is None
    assert sessions.reopen(session.id + 1, session.password, 5000, 0) is None
    assert sessions.reopen(session.id, session.password, 9000, 4000) is session
    assert session.timeout_ms == 9000
    assert sessions.take_expired(13_999) == []
    assert sessions.take_expired(14_000) == [session]
    assert sessions.reopen(session.id, session.password, 5000, 14_000) is None


def test_sessions_are_limited_and_differ() -> None:
    sessions = Sessions(LIMITS)
    made = [opened(sessions) for _ in range(3)]
    assert sessions.open(5000, 0) is None
    assert len({session.id for session in made}) == len({session.password for session in made}) == 3
    assert all(0 < session.id < 1 << 63 for session in made)
    sessions.close(made[0])
    opened(sessions)
