"""Deadlines of members of the consumer protocol: for their heartbeats and for steps of a rebalance."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from ...server.timers import Timer, TimerQueue


class Deadline(Enum):
    """A deadline that a member can miss; its value explains the miss in the broker's log."""

    SESSION = "its session expired"
    REBALANCE = "it did not give up its partitions within the rebalance timeout"
    JOIN = "it did not join again within the rebalance timeout, as its classic protocol asks"
    SYNC = "it did not sync within the rebalance timeout, as its classic protocol asks"


class MemberDeadlines:
    """A set of the deadlines of all members; `missed` is called with group id, member id and the missed deadline."""

    def __init__(self, timers: TimerQueue, missed: Callable[[str, str, Deadline], None]) -> None:
        self._timers = timers
        self._missed = missed
        self._pending: dict[tuple[str, str], dict[Deadline, Timer]] = {}

    def set(self, deadline: Deadline, group_id: str, member_id: str, delay_ms: int) -> None:
        """Set the member's deadline to `delay_ms` from now."""
        pending = self._pending.setdefault((group_id, member_id), {})
        timer = pending.get(deadline)
        if timer is None:
            pending[deadline] = self._timers.schedule(delay_ms, lambda: self._go_off(deadline, group_id, member_id))
        else:
            timer.move(delay_ms)

    def set_once(self, deadline: Deadline, group_id: str, member_id: str, delay_ms: int) -> None:
        """Set the member's deadline to `delay_ms` from now, unless it is already set."""
        if deadline not in self._pending.get((group_id, member_id), ()):
            self.set(deadline, group_id, member_id, delay_ms)

    def clear(self, deadline: Deadline, group_id: str, member_id: str) -> None:
        """Cancel a deadline of the member."""
        timer = self._take(deadline, group_id, member_id)
        if timer is not None:
            timer.cancel()

    def clear_all(self, group_id: str, member_id: str) -> None:
        """Cancel all deadlines of a member that was removed."""
        for timer in self._pending.pop((group_id, member_id), {}).values():
            timer.cancel()

    def _go_off(self, deadline: Deadline, group_id: str, member_id: str) -> None:
        self._take(deadline, group_id, member_id)
        self._missed(group_id, member_id, deadline)

    def _take(self, deadline: Deadline, group_id: str, member_id: str) -> Timer | None:
        pending = self._pending.get((group_id, member_id), {})
        timer = pending.pop(deadline, None)
        if not pending:
            self._pending.pop((group_id, member_id), None)
        return timer
