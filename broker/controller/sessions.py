"""When each broker was last heard of, and how far it has read the metadata (Kafka `BrokerHeartbeatManager`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

NOTHING_READ = -1


@dataclass(slots=True)
class Session:
    """One broker's life as the controller sees it; times are seconds of a clock that never goes back."""

    epoch: int
    last_contact: float
    read_offset: int = NOTHING_READ
    """The last metadata record that the broker has read."""
    shutdown_offset: int | None = None
    """Once the broker wants to stop: the record by which others lead what it led."""
    ends: bool = True
    """Whether silence ends it; a broker in the controller's own process is as alive as the controller."""
    unwritable: frozenset[UUID] = frozenset()
    """Log directories that take no writes, for want of space as a rule."""


class BrokerSessions:
    """The sessions of all brokers that are registered, fenced or not."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._sessions: dict[int, Session] = {}

    def begin(self, node_id: int, epoch: int, now: float, *, ends: bool = True) -> Session:
        """Begin a broker's session, or begin it anew."""
        session = self._sessions[node_id] = Session(epoch, now, ends=ends)
        return session

    def get(self, node_id: int) -> Session | None:
        """The session of a broker, if it has one."""
        return self._sessions.get(node_id)

    def end(self, node_id: int) -> None:
        """Forget a broker."""
        self._sessions.pop(node_id, None)

    def is_valid(self, node_id: int, now: float) -> bool:
        """Whether the broker has been heard of lately."""
        session = self._sessions.get(node_id)
        return session is not None and not self._is_over(session, now)

    def expired(self, now: float) -> Iterator[int]:
        """Brokers that have been silent for too long."""
        return (node_id for node_id, session in list(self._sessions.items()) if self._is_over(session, now))

    def begin_all_anew(self, now: float) -> None:
        """Count every broker as heard of now."""
        for session in self._sessions.values():
            session.last_contact = now

    def next_expiry(self) -> float:
        """When the next session ends if nothing is heard; infinity if none can."""
        ends = (session.last_contact + self._timeout_s for session in self._sessions.values() if session.ends)
        return min(ends, default=float("inf"))

    def _is_over(self, session: Session, now: float) -> bool:
        return session.ends and now >= session.last_contact + self._timeout_s
