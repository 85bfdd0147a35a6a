"""Sessions: their ids, passwords and timeouts (ZooKeeper `SessionTrackerImpl`)."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Protocol

from .limits import Limits
from .messages import PASSWORD_BYTES

MOST_SESSION_ID_BITS = 62


class SessionClient(Protocol):
    """A connection that carries a session."""

    def disconnect(self) -> None:
        """Close the connection soon, after the replies that are due."""


@dataclass(slots=True, eq=False)
class Session:
    """A session of a client, which outlives its connection by its timeout."""

    id: int
    password: bytes
    timeout_ms: int
    expires_at_ms: int
    client: SessionClient | None = None
    """The connection that carries the session, if there is one."""
    is_busy: bool = False
    """Whether a request is in progress: as the client's later pings wait behind it, the session does not expire."""


class Sessions:
    """A set of the sessions, which expire at a multiple of the tick, as in ZooKeeper.

    Times are milliseconds of a clock that never goes back.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._sessions: dict[int, Session] = {}
        self._by_expiry: dict[int, set[Session]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def negotiated_ms(self, timeout_ms: int) -> int:
        """Return the timeout that a session gets for the one that its client asked for."""
        return max(self._limits.min_session_timeout_ms, min(timeout_ms, self._limits.max_session_timeout_ms))

    def open(self, timeout_ms: int, now_ms: int) -> Session | None:
        """Return a new session, None if there are too many."""
        if len(self._sessions) >= self._limits.max_sessions:
            return None
        session_id = 0
        while session_id == 0 or session_id in self._sessions:
            session_id = secrets.randbits(MOST_SESSION_ID_BITS)
        session = Session(session_id, secrets.token_bytes(PASSWORD_BYTES), self.negotiated_ms(timeout_ms), 0)
        self._sessions[session_id] = session
        self._schedule(session, now_ms)
        return session

    def reopen(self, session_id: int, password: bytes, timeout_ms: int, now_ms: int) -> Session | None:
        """Return the session that moves to a new connection; None if it has expired, or if the password is wrong."""
        session = self._sessions.get(session_id)
        if session is None or not secrets.compare_digest(session.password, password):
            return None
        session.timeout_ms = self.negotiated_ms(timeout_ms)
        self.touch(session, now_ms)
        return session

    def is_open(self, session: Session) -> bool:
        """Return whether a session has neither expired nor been closed."""
        return self._sessions.get(session.id) is session

    def touch(self, session: Session, now_ms: int) -> None:
        """Start the timeout of a session again."""
        if self.is_open(session):
            self._unschedule(session)
            self._schedule(session, now_ms)

    def close(self, session: Session) -> None:
        """Remove a session."""
        if self.is_open(session):
            self._unschedule(session)
            del self._sessions[session.id]

    def take_expired(self, now_ms: int) -> list[Session]:
        """Remove and return the sessions whose timeout has passed, those that expired first at the front."""
        expired = []
        for due_ms in sorted(due_ms for due_ms in self._by_expiry if due_ms <= now_ms):
            for session in sorted(self._by_expiry[due_ms], key=lambda session: session.id):
                if session.is_busy:
                    self.touch(session, now_ms)
                else:
                    self.close(session)
                    expired.append(session)
        return expired

    def _schedule(self, session: Session, now_ms: int) -> None:
        tick_ms = self._limits.tick_ms
        session.expires_at_ms = ((now_ms + session.timeout_ms) // tick_ms + 1) * tick_ms
        self._by_expiry.setdefault(session.expires_at_ms, set()).add(session)

    def _unschedule(self, session: Session) -> None:
        together = self._by_expiry[session.expires_at_ms]
        together.discard(session)
        if not together:
            del self._by_expiry[session.expires_at_ms]
