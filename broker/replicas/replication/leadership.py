"""The leader's state of the followers of a partition with several replicas, during one leader epoch.

- A follower's fetch offset is the end of its log; the smallest log end offset of the in-sync replicas is the high
  watermark, which only grows.
- A follower is in sync as long as it has reached the leader's log end within `replica.lag.time.max.ms`.
- Only the controller changes the in-sync set. While a change is pending, the union of both sets counts for the high
  watermark, so no record is acknowledged that a new leader might lack (KIP-497).

Source: Kafka `Partition` and `Replica`. Times are milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ....storage.log.partition_log import PartitionLog
from ...metadata.state import PartitionState

UNKNOWN_OFFSET = -1
NO_BROKER_EPOCH = -1


@dataclass(slots=True)
class InSyncCounts:
    """A count of the changes that this broker has requested as a leader, since the start (Kafka `IsrShrinksPerSec`)."""

    shrinks: int = 0
    expands: int = 0
    failed_updates: int = 0


@dataclass(frozen=True, slots=True)
class ReplicationRules:
    """A record of the leading broker's settings and callbacks."""

    node_id: int
    max_lag_ms: int
    """`replica.lag.time.max.ms`."""
    now_ms: Callable[[], int]
    may_join: Callable[[int, int], bool]
    """Tells whether a broker with this epoch (-1: any) may be in sync: registered, not fenced, not in shutdown."""
    wish: Callable[[PartitionLog, InSyncChange], None]
    """Called with each requested change of an in-sync set."""
    counts: InSyncCounts = field(default_factory=InSyncCounts)


@dataclass(slots=True)
class FollowerProgress:
    """A record of one follower's progress, from its fetches in this leader epoch."""

    caught_up_ms: int
    """The last time at which the follower had reached the leader's log end."""
    log_end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    broker_epoch: int = NO_BROKER_EPOCH
    fetched_ms: int = 0
    leader_end_at_fetch: int = 0
    """The leader's log end offset at the follower's last fetch."""

    def fetched(self, offset: int, leader_end_offset: int, now_ms: int) -> None:
        """Record a fetch from ``offset`` on (Kafka `Replica.updateFetchStateOrThrow`)."""
        if offset >= leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif offset >= self.leader_end_at_fetch:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.log_end_offset = offset
        self.leader_end_at_fetch = leader_end_offset
        self.fetched_ms = now_ms


class InSyncChange(NamedTuple):
    """A requested in-sync set, as AlterPartition carries it."""

    leader_epoch: int
    partition_epoch: int
    in_sync: tuple[tuple[int, int], ...]
    """Node ids with their broker epochs, -1 for an unknown epoch."""

    @property
    def node_ids(self) -> tuple[int, ...]:
        """The node ids alone."""
        return tuple(node_id for node_id, _ in self.in_sync)


class Leadership:
    """A leader's view of the followers of one partition.

    Invariant: `in_sync` is the controller's last known set; the union of `in_sync` and the pending `wish` are the
    replicas for which the high watermark waits.
    """

    def __init__(self, log: PartitionLog, state: PartitionState, rules: ReplicationRules) -> None:
        self.log = log
        self.rules = rules
        self.leader_epoch = state.leader_epoch
        self.epoch_start_offset = log.log_end_offset
        """The log end offset at the start of the epoch; a follower that has less cannot be in sync."""
        self.in_sync: tuple[int, ...] = ()
        self.partition_epoch = -1
        self.wish: InSyncChange | None = None
        """The pending change, requested from the controller."""
        self.followers: dict[int, FollowerProgress] = {}
        self.update(state)

    def update(self, state: PartitionState) -> None:
        """Apply the controller's state of the partition in this leader epoch; an older state changes nothing."""
        if state.partition_epoch <= self.partition_epoch:
            return
        self.partition_epoch = state.partition_epoch
        self._take_in_sync(state.isr, self.wish)
        self.wish = None
        now_ms = self.rules.now_ms()
        known, self.followers = self.followers, {}
        for node_id in state.replicas:
            if node_id != self.rules.node_id:
                # An in-sync follower gets the full lag time until its first fetch.
                since_ms = now_ms if node_id in self.in_sync else 0
                self.followers[node_id] = known.get(node_id) or FollowerProgress(since_ms)

    # --- fetches and the high watermark ---

    def fetched(self, node_id: int, offset: int, *, log_start_offset: int, broker_epoch: int) -> None:
        """Record a follower's fetch from ``offset`` on; a follower that has caught up is to join the in-sync set.

        The high watermark does not change: see `advance`. Raises KeyError for a broker without a replica.
        """
        follower = self.followers[node_id]
        follower.fetched(offset, self.log.log_end_offset, self.rules.now_ms())
        follower.log_start_offset = log_start_offset
        follower.broker_epoch = broker_epoch
        if self.wish is None and node_id not in self.in_sync and self._has_caught_up(node_id, follower):
            self._wish_for((*self.in_sync, node_id))

    def idles(self, node_id: int, offset: int, *, log_start_offset: int, broker_epoch: int) -> bool:
        """Return whether a fetch from ``offset`` on changes nothing but the follower's fetch time, which is recorded.

        That is so if the follower is in sync, has not moved, and has the whole log, all of which is replicated.
        """
        follower, log = self.followers.get(node_id), self.log
        if (
            follower is None
            or not offset == follower.log_end_offset == log.log_end_offset == log.high_watermark
            or follower.log_start_offset != log_start_offset
            or follower.broker_epoch != broker_epoch
            or node_id not in self.in_sync
        ):
            return False
        follower.fetched(offset, offset, self.rules.now_ms())
        return True

    def was_caught_up(self, node_id: int, at_ms: int) -> None:
        """Record that a follower that has the whole log has last fetched at this time."""
        follower = self.followers.get(node_id)
        if follower is not None:
            follower.caught_up_ms = max(follower.caught_up_ms, at_ms)
            follower.fetched_ms = max(follower.fetched_ms, at_ms)

    def _has_caught_up(self, node_id: int, follower: FollowerProgress) -> bool:
        wanted_offset = max(self.log.high_watermark, self.epoch_start_offset)
        return follower.log_end_offset >= wanted_offset and self.rules.may_join(node_id, follower.broker_epoch)

    def advance(self) -> bool:
        """Advance the high watermark as far as possible (Kafka `maybeIncrementLeaderHW`); return whether it moved.

        It is the smallest log end offset of the replicas that count: the in-sync replicas, those of the pending change,
        and those that are about to catch up, which would otherwise chase a moving end. With fewer than
        `min.insync.replicas` it stays (KIP-966).
        """
        log = self.log
        if not self.has_enough_in_sync:
            return False
        now_ms = self.rules.now_ms()
        offset = log.log_end_offset
        counted = self.in_sync if self.wish is None else {*self.in_sync, *self.wish.node_ids}
        for node_id, follower in self.followers.items():
            held = follower.log_end_offset
            if held < offset and (node_id in counted or self._is_about_to_join(node_id, follower, now_ms)):
                offset = held
        before = log.high_watermark
        log.advance_high_watermark(offset)
        return log.high_watermark > before

    def _is_about_to_join(self, node_id: int, follower: FollowerProgress, now_ms: int) -> bool:
        is_recent = now_ms - follower.caught_up_ms <= self.rules.max_lag_ms
        return is_recent and self.rules.may_join(node_id, follower.broker_epoch)

    @property
    def min_in_sync(self) -> int:
        """The value of `min.insync.replicas`, but never more than the number of replicas (Kafka `effectiveMinIsr`)."""
        return min(self.log.config.min_insync_replicas, len(self.followers) + 1)

    @property
    def has_enough_in_sync(self) -> bool:
        """Whether there are at least `min_in_sync` in-sync replicas."""
        return len(self.in_sync) >= self.min_in_sync

    @property
    def low_watermark(self) -> int:
        """The smallest log start offset of all active replicas; records below it are deleted everywhere."""
        starts = [self.log.log_start_offset]
        starts += [
            follower.log_start_offset
            for node_id, follower in self.followers.items()
            if self.rules.may_join(node_id, NO_BROKER_EPOCH)
        ]
        return min(starts)

    # --- the in-sync set ---

    def drop_laggards(self) -> None:
        """Request an in-sync set without followers that have lagged for too long, if there are any."""
        if self.wish is not None:
            return
        now_ms, end_offset = self.rules.now_ms(), self.log.log_end_offset
        kept = [node_id for node_id in self.in_sync if not self._lags(node_id, end_offset, now_ms)]
        if len(kept) < len(self.in_sync):
            self._wish_for(kept)

    def _lags(self, node_id: int, end_offset: int, now_ms: int) -> bool:
        follower = self.followers.get(node_id)
        if follower is None:
            return False
        return follower.log_end_offset != end_offset and now_ms - follower.caught_up_ms > self.rules.max_lag_ms

    def _wish_for(self, node_ids: Sequence[int]) -> None:
        in_sync = tuple((node_id, self._broker_epoch(node_id)) for node_id in node_ids)
        self.wish = InSyncChange(self.leader_epoch, self.partition_epoch, in_sync)
        self.rules.wish(self.log, self.wish)

    def _broker_epoch(self, node_id: int) -> int:
        follower = self.followers.get(node_id)
        return NO_BROKER_EPOCH if follower is None else follower.broker_epoch

    def granted(self, wish: InSyncChange, in_sync: Sequence[int], partition_epoch: int) -> None:
        """Apply the controller's new in-sync set, unless the metadata log has brought a newer one."""
        if self.wish == wish:
            self.wish = None
        if partition_epoch > self.partition_epoch:
            self.partition_epoch = partition_epoch
            self._take_in_sync(in_sync, wish)

    def _take_in_sync(self, in_sync: Sequence[int], wish: InSyncChange | None) -> None:
        """Take the controller's in-sync set; a change that was requested here is counted."""
        if wish is not None and set(in_sync) == set(wish.node_ids):
            grows = len(in_sync) - len(self.in_sync)
            self.rules.counts.expands += grows > 0
            self.rules.counts.shrinks += grows < 0
        self.in_sync = tuple(in_sync)

    def refused(self, wish: InSyncChange, *, is_ineligible: bool = False) -> None:
        """Discard a change that the controller refused. A missing answer is no refusal: the change may be in effect.

        If the joining follower ``is_ineligible`` (its disk is full, for example), the high watermark stops waiting for
        it.
        """
        if self.wish != wish:
            return
        self.wish = None
        self.rules.counts.failed_updates += 1
        for node_id in wish.node_ids:
            if is_ineligible and node_id not in self.in_sync and node_id in self.followers:
                self.followers[node_id].caught_up_ms = 0
