"""The partitions of an idle follower's session, watched from one Fetch to the next.

A follower sends a Fetch twice a second for each leader. If it has all records and all state of hundreds of partitions,
looking at each of them for every such request would be most of an idle broker's work. Their state changes with events
that a partition reports to its waiters. Two things change without an event, and are compared at each request: the log
start offset and the in-sync set.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ....storage.log.partition_log import PartitionLog
from ..partition import Partition
from ..replication.leadership import Leadership


class WaitingFetch(Protocol):
    """A delayed Fetch of a session (a `purgatory.DelayedFetch`)."""

    def watch(self) -> None:
        """Begin to wait for changes of the partitions by itself."""

    def appended(self, size_bytes: int) -> None:
        """Handle an append of so many bytes."""

    def changed(self) -> None:
        """Handle any other change."""


class _Rest(NamedTuple):
    """The state of a partition at rest; any change of the state ends the rest."""

    log: PartitionLog
    log_start_offset: int
    leadership: Leadership
    in_sync: tuple[int, ...]


class PartitionsAtRest:
    """The watched partitions of one session, until one of them changes (a `PartitionWaiter`)."""

    __slots__ = ("_fetched_ms", "_partitions", "_replica_epoch", "_replica_id", "_rests", "waiting")

    def __init__(self, partitions: Sequence[Partition], *, replica_id: int, replica_epoch: int) -> None:
        """Begin to watch partitions that the broker ``replica_id``, an in-sync follower, has wholly copied."""
        self._partitions = partitions
        self._replica_id = replica_id
        self._replica_epoch = replica_epoch
        self._fetched_ms = 0
        self.waiting: WaitingFetch | None = None
        """The session's delayed Fetch."""
        self._rests = [
            _Rest(partition.log, partition.log.log_start_offset, leadership, leadership.in_sync)
            for partition in partitions
            if (leadership := partition.leadership) is not None
        ]
        for partition in partitions:
            partition.watch(self, is_follower=True)

    @property
    def has_ended(self) -> bool:
        """Whether a partition has changed, or the session's client has disconnected."""
        return not self._rests

    def is_unchanged(self) -> bool:
        """Return whether the follower still has all records and all state of each partition."""
        return not self.has_ended and all(
            log.log_start_offset == log_start_offset and leadership.in_sync == in_sync
            for log, log_start_offset, leadership, in_sync in self._rests
        )

    def fetched(self, *, replica_id: int, replica_epoch: int) -> bool:
        """Record a Fetch of the session at this time, and return whether it needs no look at the partitions."""
        is_same = (replica_id, replica_epoch) == (self._replica_id, self._replica_epoch)
        if self.waiting is not None or not is_same or not self.is_unchanged():
            return False
        self._fetched_ms = self._rests[0].leadership.rules.now_ms()
        return True

    def end(self) -> None:
        """Stop watching, give each partition the time of the follower's last Fetch, and let the delayed one watch."""
        for partition in self._partitions:
            partition.unwatch(self)
        for _, _, leadership, _ in self._rests:
            leadership.was_caught_up(self._replica_id, self._fetched_ms)
        self._partitions, self._rests = (), []
        if self.waiting is not None:
            self.waiting.watch()

    def appended(self, size_bytes: int) -> None:
        """End, and report the append to the delayed Fetch."""
        self.end()
        if self.waiting is not None:
            self.waiting.appended(size_bytes)

    def changed(self) -> None:
        """End, and report the change to the delayed Fetch."""
        self.end()
        if self.waiting is not None:
            self.waiting.changed()
