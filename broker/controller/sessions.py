"""The time of each broker's last contact, and its offset in the metadata log (Kafka `BrokerHeartbeatManager`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

NOTHING_READ = -1


@dataclass(slots=True)
class Session:
    """A broker's session as the controller sees it; times are seconds of a monotonic clock."""

    epoch: int
    last_contact: float
    read_offset: int = NOTHING_READ
    """The last metadata record that the broker has read."""
    shutdown_offset: int | None = None
    """In a controlled shutdown: the offset of the record that moves the broker's leadership to other brokers."""
    ends: bool = True
    """Whether the session can time out; that of a broker in the controller's own process cannot."""
    unwritable: frozenset[UUID] = frozenset()
    """Log directories that accept no writes, usually because the disk is full."""


class BrokerSessions:
    """A registry of the sessions of all registered brokers, fenced or not."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._sessions: dict[int, Session] = {}

    def begin(self, node_id: int, epoch: int, now: float, *, ends: bool = True) -> Session:
        """Start a broker's session, or restart it."""
        session = self._sessions[node_id] = Session(epoch, now, ends=ends)
        return session

    def get(self, node_id: int) -> Session | None:
        """Return the session of a broker, None if it has none."""
        return self._sessions.get(node_id)

    def end(self, node_id: int) -> None:
        """Remove a broker's session."""
        self._sessions.pop(node_id, None)

    def is_valid(self, node_id: int, now: float) -> bool:
        """Return whether the broker has a session that has not timed out."""
        session = self._sessions.get(node_id)
        return session is not None and not self._is_over(session, now)

    def expired(self, now: float) -> Iterator[int]:
        """Yield brokers whose session has timed out."""
        return (node_id for node_id, session in list(self._sessions.items()) if self._is_over(session, now))

    def begin_all_anew(self, now: float) -> None:
        """Restart the timeout of every session."""
        for session in self._sessions.values():
            session.last_contact = now

    def next_expiry(self) -> float:
        """Return the time of the next session timeout; infinity if there is none."""
        ends = (session.last_contact + self._timeout_s for session in self._sessions.values() if session.ends)
        return min(ends, default=float("inf"))

    def _is_over(self, session: Session, now: float) -> bool:
        return session.ends and now >= session.last_contact + self._timeout_s
