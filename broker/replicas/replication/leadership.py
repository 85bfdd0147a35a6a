"""The leader of a partition with several replicas: what it knows of its followers during one leader epoch.

- A follower's fetch says up to where it holds the log; the least of what the in-sync replicas hold is the high
  watermark, which only grows.
- A follower is in sync as long as it has held all of the log at some time within `replica.lag.time.max.ms`.
- The in-sync set is the controller's to change. While a change is asked for, the larger of the two sets counts for the
  high watermark, so nothing is told to be safe that the new leader might lack (KIP-497).

Source: Kafka `Partition` and `Replica`. Times are milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ....storage.log.partition_log import PartitionLog
from ...metadata.state import PartitionState

UNKNOWN_OFFSET = -1
NO_BROKER_EPOCH = -1


@dataclass(frozen=True, slots=True)
class ReplicationRules:
    """What leading takes of the broker that does it."""

    node_id: int
    max_lag_ms: int
    """`replica.lag.time.max.ms`."""
    now_ms: Callable[[], int]
    may_join: Callable[[int, int], bool]
    """Whether a broker, in the life that its epoch tells (-1: any), may be in sync: alive, and not about to stop."""
    wish: Callable[[PartitionLog, InSyncChange], None]
    """Called with each change of an in-sync set that the controller shall make."""


@dataclass(slots=True)
class FollowerProgress:
    """How far one follower is, by its fetches in this leader epoch."""

    caught_up_ms: int
    """When it last held all that the leader held."""
    log_end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    broker_epoch: int = NO_BROKER_EPOCH
    fetched_ms: int = 0
    leader_end_at_fetch: int = 0
    """Where the leader's log ended when it last fetched."""

    def fetched(self, offset: int, leader_end_offset: int, now_ms: int) -> None:
        """Take note of a fetch from ``offset`` on (Kafka `Replica.updateFetchStateOrThrow`)."""
        if offset >= leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif offset >= self.leader_end_at_fetch:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.log_end_offset = offset
        self.leader_end_at_fetch = leader_end_offset
        self.fetched_ms = now_ms


class InSyncChange(NamedTuple):
    """A wish for another in-sync set, as AlterPartition carries it."""

    leader_epoch: int
    partition_epoch: int
    in_sync: tuple[tuple[int, int], ...]
    """Node ids with their broker epochs, -1 where that is not known."""

    @property
    def node_ids(self) -> tuple[int, ...]:
        """The brokers alone."""
        return tuple(node_id for node_id, _ in self.in_sync)


class Leadership:
    """The followers of one partition as its leader sees them.

    Invariant: `in_sync` is what the controller has told last; `in_sync` and the wish under way together hold everybody
    whose copy the high watermark waits for.
    """

    def __init__(self, log: PartitionLog, state: PartitionState, rules: ReplicationRules) -> None:
        self.log = log
        self.rules = rules
        self.leader_epoch = state.leader_epoch
        self.epoch_start_offset = log.log_end_offset
        """Where the log ended when the epoch began; who holds less cannot be in sync."""
        self.in_sync: tuple[int, ...] = ()
        self.partition_epoch = -1
        self.wish: InSyncChange | None = None
        """The change that the controller has been asked for."""
        self.followers: dict[int, FollowerProgress] = {}
        self.update(state)

    def update(self, state: PartitionState) -> None:
        """Take what the controller says of the partition in this leader epoch; older news change nothing."""
        if state.partition_epoch <= self.partition_epoch:
            return
        self.partition_epoch = state.partition_epoch
        self.in_sync = tuple(state.isr)
        self.wish = None
        now_ms = self.rules.now_ms()
        known, self.followers = self.followers, {}
        for node_id in state.replicas:
            if node_id != self.rules.node_id:
                # Who is in sync gets its time to show it.
                since_ms = now_ms if node_id in self.in_sync else 0
                self.followers[node_id] = known.get(node_id) or FollowerProgress(since_ms)

    # --- fetches and the high watermark ---

    def fetched(self, node_id: int, offset: int, *, log_start_offset: int, broker_epoch: int) -> None:
        """A follower has fetched from ``offset`` on, so it holds what is before; one that has caught up shall join.

        The high watermark is not moved: see `advance`. Raises KeyError for a broker without a replica.
        """
        follower = self.followers[node_id]
        follower.fetched(offset, self.log.log_end_offset, self.rules.now_ms())
        follower.log_start_offset = log_start_offset
        follower.broker_epoch = broker_epoch
        if self.wish is None and node_id not in self.in_sync and self._has_caught_up(node_id, follower):
            self._wish_for((*self.in_sync, node_id))

    def idles(self, node_id: int, offset: int, *, log_start_offset: int, broker_epoch: int) -> bool:
        """Whether a fetch from ``offset`` on changes nothing but the time at which the follower was seen, noted here.

        That is so if it is in sync, as it was, and what it holds is all there is and replicated.
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

    def _has_caught_up(self, node_id: int, follower: FollowerProgress) -> bool:
        wanted_offset = max(self.log.high_watermark, self.epoch_start_offset)
        return follower.log_end_offset >= wanted_offset and self.rules.may_join(node_id, follower.broker_epoch)

    def advance(self) -> bool:
        """Raise the high watermark to what all hold that must (Kafka `maybeIncrementLeaderHW`); whether it moved.

        That are the in-sync replicas, those that are wished to be, and those that are about to catch up, who would
        otherwise chase an end that moves. With fewer than `min.insync.replicas` it stays (KIP-966).
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
        """`min.insync.replicas`, but never more than there are replicas (Kafka `effectiveMinIsr`)."""
        return min(self.log.config.min_insync_replicas, len(self.followers) + 1)

    @property
    def has_enough_in_sync(self) -> bool:
        """Whether records that are acknowledged now would be in as many logs as the topic wants."""
        return len(self.in_sync) >= self.min_in_sync

    @property
    def low_watermark(self) -> int:
        """The least offset at which some replica that may serve still begins; what is below is deleted everywhere."""
        starts = [self.log.log_start_offset]
        starts += [
            follower.log_start_offset
            for node_id, follower in self.followers.items()
            if self.rules.may_join(node_id, NO_BROKER_EPOCH)
        ]
        return min(starts)

    # --- the in-sync set ---

    def drop_laggards(self) -> None:
        """Ask for a set without those who have not held the whole log for too long, if there are any."""
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
        """The controller has agreed: this is the set now. What came from the metadata log meanwhile counts more."""
        if self.wish == wish:
            self.wish = None
        if partition_epoch > self.partition_epoch:
            self.partition_epoch = partition_epoch
            self.in_sync = tuple(in_sync)

    def refused(self, wish: InSyncChange, *, is_ineligible: bool = False) -> None:
        """The controller has said no. Silence is no such answer: the change may have been made, and then it counts.

        Where who was to join ``is_ineligible`` (its disk is full, say), the high watermark waits for it no more.
        """
        if self.wish != wish:
            return
        self.wish = None
        for node_id in wish.node_ids:
            if is_ineligible and node_id not in self.in_sync and node_id in self.followers:
                self.followers[node_id].caught_up_ms = 0
