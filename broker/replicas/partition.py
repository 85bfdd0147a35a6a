"""A partition of this broker: its log, its role among the replicas, and its waiters."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import trio

from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.internal_topics import is_internal
from ...protocol.records.produced_cy import Produced
from ...protocol.records.record import Buffer, TimestampType
from ...protocol.records.tag_runs import NO_TAG_RUNS, TagRuns
from ...protocol.records.validation import AppendRules
from ...storage.log.log_config import LogConfig
from ...storage.log.partition_log import AppendOrigin, AppendResult, PartitionLog
from ..metadata.state import PartitionState
from ..server.pending import Pending, completed
from .replication.leadership import Leadership, ReplicationRules

NO_LEADER_EPOCH = -1


class PartitionWaiter(Protocol):
    """A waiter that is notified of a partition's changes (such as `purgatory.DelayedFetch`)."""

    def appended(self, size_bytes: int) -> None:
        """Handle an append of so many bytes."""

    def changed(self) -> None:
        """Handle any other change: deletion, truncation, a new leader, or a moved stable offset."""


REPLICATED = (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
"""Codes for a record below the high watermark, also if in-sync replicas were lost meanwhile."""


@dataclass(order=True, slots=True)
class UnreplicatedAppend:
    """A pending operation that waits until the high watermark passes ``offset``."""

    offset: int
    order: int
    deadline: float = field(compare=False)
    """In trio's clock."""
    outcome: Pending[ErrorCode] = field(compare=False)


@dataclass(frozen=True, slots=True)
class Undeleted:
    """A pending operation that waits until no replica has records below ``offset``."""

    offset: int
    deadline: float
    """In trio's clock."""
    outcome: Pending[ErrorCode]


@dataclass(frozen=True, slots=True)
class Following:
    """A role of a replica that does not lead; `leader_id` is -1 while there is no leader."""

    leader_id: int


class Partition:
    """A partition with its log, its role and its waiters.

    The only replica of a partition has no role: it leads, and the replication code of this class costs it nothing.
    """

    __slots__ = (
        "_followers_waiting",
        "_order",
        "_undeleted",
        "_unreplicated",
        "index",
        "is_internal",
        "leader_epoch",
        "log",
        "on_waiting",
        "role",
        "topic",
        "waiters",
    )

    def __init__(self, log: PartitionLog, *, leader_epoch: int = 0) -> None:
        self.log = log
        self.topic = log.topic
        self.index = log.partition
        self.is_internal = is_internal(log.topic)
        self.leader_epoch = leader_epoch
        self.role: Leadership | Following | None = None
        self.on_waiting: Callable[[Partition], None] | None = None
        """Called when an operation begins to wait for replicas; `PartitionRegistry` sets it."""
        self.waiters: set[PartitionWaiter] = set()
        """Notified of each append that replicas need not have."""
        self._followers_waiting: set[PartitionWaiter] = set()
        self._unreplicated: list[UnreplicatedAppend] = []
        """A heap."""
        self._undeleted: list[Undeleted] = []
        self._order = itertools.count()

    @property
    def append_rules(self) -> AppendRules:
        """The rules for records that follow from the topic's present configuration."""
        rules = self.log.append_rules
        if rules is None:
            rules = self.log.append_rules = rules_of(self.log.config)
        return rules

    # --- roles ---

    @property
    def is_leader(self) -> bool:
        """Whether this broker's replica accepts records from producers."""
        return not isinstance(self.role, Following)

    @property
    def leadership(self) -> Leadership | None:
        """The state of the followers, if this replica leads and there are any."""
        return self.role if isinstance(self.role, Leadership) else None

    def check_leader(self) -> None:
        """Raise BrokerError NOT_LEADER_OR_FOLLOWER if another broker leads, or none."""
        if isinstance(self.role, Following):
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.topic}-{self.index} is not led here")

    def lead_alone(self, leader_epoch: int) -> None:
        """Become the only replica: all records in the log count as replicated."""
        self.leader_epoch = leader_epoch
        self.role = None
        self.log.sole_replica = True
        self.log.advance_high_watermark(self.log.log_end_offset)
        self._high_watermark_moved()
        self.wake_waiters()

    def become_leader(self, state: PartitionState, rules: ReplicationRules) -> bool:
        """Become leader, or apply the controller's newer state; return whether this is a new leader epoch."""
        leadership = self.leadership
        if leadership is not None and leadership.leader_epoch == state.leader_epoch:
            leadership.update(state)
            self.advance_high_watermark()
            return False
        self._fail_waiting()
        self.leader_epoch = state.leader_epoch
        self.log.sole_replica = False
        self.role = Leadership(self.log, state, rules)
        self.wake_waiters()
        self.advance_high_watermark()
        return True

    def become_follower(self, state: PartitionState) -> bool:
        """Become a follower of the leader in ``state``, if there is one; return whether leader or epoch changed."""
        role = Following(state.leader)
        if self.role == role and self.leader_epoch == state.leader_epoch:
            return False
        self.leader_epoch = state.leader_epoch
        self.log.sole_replica = False
        self.role = role
        self._fail_waiting()
        self.wake_waiters()
        return True

    def retire(self) -> None:
        """Stop serving clients: the topic was deleted, or this broker has no replica any more."""
        self.role = Following(-1)
        self._fail_waiting()
        self.wake_waiters()

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (largest known epoch <= ``epoch``, its end offset exclusive); (-1, -1) if unknown (KIP-101, KIP-279).

        A leader's own epoch is known before its first record, and ends at the log end offset.
        """
        log = self.log
        if epoch < NO_LEADER_EPOCH and log.leader_epoch == NO_LEADER_EPOCH:
            # The leader's own epoch is the first known one, and the requested one ended at its start.
            return epoch, log.log_start_offset
        if not log.leader_epoch < epoch <= self.leader_epoch:
            return log.end_offset_for_epoch(epoch)
        if epoch == self.leader_epoch or log.leader_epoch < 0:
            return epoch, log.log_end_offset
        return log.leader_epoch, log.log_end_offset

    # --- appending ---

    def takes(self, acks: int) -> bool:
        """Return whether leadership and in-sync replicas allow an append with these acks."""
        leadership = self.leadership
        return self.role is None or (leadership is not None and (acks >= 0 or leadership.has_enough_in_sync))

    def append(
        self,
        produced: Produced,
        *,
        leader_epoch: int | None = None,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> AppendResult:
        """Append to the log and notify waiters.

        Raises BrokerError as `PartitionLog.append` does, and NOT_LEADER_OR_FOLLOWER.
        """
        epoch = self.leader_epoch if leader_epoch is None else leader_epoch
        if self.role is not None:
            return self._append_and_replicate(produced, epoch, origin)
        result = self.log.append(produced, leader_epoch=epoch, origin=origin)
        if self.waiters and not result.duplicate:
            size_bytes = len(produced.data)
            for waiter in list(self.waiters):
                waiter.appended(size_bytes)
        return result

    def _append_and_replicate(self, produced: Produced, epoch: int, origin: AppendOrigin) -> AppendResult:
        self.check_leader()
        result = self.log.append(produced, leader_epoch=epoch, origin=origin)
        if not result.duplicate:
            self._tell_followers(len(produced.data))
        return result

    def append_numbered(self, records: Buffer, tags: TagRuns = NO_TAG_RUNS) -> AppendResult:
        """Append batches that have their offsets already, as `gregor mirror` sends them, with the source's tags.

        Raises BrokerError as `PartitionLog.append_as_follower` does, and NOT_LEADER_OR_FOLLOWER.
        """
        self.check_leader()
        result = self.log.append_as_follower(records, tags=tags)
        if self.role is None:
            for waiter in list(self.waiters):
                waiter.appended(len(records))
        else:
            self._tell_followers(len(records))
        return result

    def _tell_followers(self, size_bytes: int) -> None:
        leadership = self.leadership
        if leadership is None:
            return
        for waiter in list(self._followers_waiting):
            waiter.appended(size_bytes)
        if len(leadership.in_sync) == 1:
            self.advance_high_watermark()

    def check_in_sync(self) -> None:
        """Raise BrokerError NOT_ENOUGH_REPLICAS if there are too few in-sync replicas for acks=all."""
        leadership = self.leadership
        if leadership is not None and not leadership.has_enough_in_sync:
            raise BrokerError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"The size of the current ISR {leadership.in_sync} is insufficient to satisfy the min.isr requirement "
                f"of {leadership.min_in_sync} for partition {self.topic}-{self.index}",
            )

    def replicated(self, offset: int, timeout_s: float = math.inf) -> Pending[ErrorCode]:
        """Return a pending NONE, completed when all in-sync replicas have the record at ``offset``, appended here as
        leader; or a pending error.

        The errors: REQUEST_TIMED_OUT, NOT_LEADER_OR_FOLLOWER if another broker becomes leader first,
        NOT_ENOUGH_REPLICAS_AFTER_APPEND if too few in-sync replicas are left.
        """
        if self.is_replicated(offset):
            return completed(self._code_of_replicated())
        if not self.is_leader:
            return completed(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        outcome: Pending[ErrorCode] = Pending()
        deadline = trio.current_time() + timeout_s
        heapq.heappush(self._unreplicated, UnreplicatedAppend(offset, next(self._order), deadline, outcome))
        self._begin_to_wait()
        return outcome

    def _code_of_replicated(self) -> ErrorCode:
        leadership = self.leadership
        is_safe = leadership is None or leadership.has_enough_in_sync
        return ErrorCode.NONE if is_safe else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    @property
    def unreplicated_count(self) -> int:
        """The number of appends whose answers wait for replicas."""
        return len(self._unreplicated)

    def _begin_to_wait(self) -> None:
        if self.on_waiting is not None:
            self.on_waiting(self)

    @property
    def has_waiting_operations(self) -> bool:
        """Whether appends or deletions wait for replicas."""
        return bool(self._unreplicated or self._undeleted)

    def give_up_late(self, now: float) -> None:
        """Fail operations whose deadline has passed; call this periodically with trio's time (`WaitingPartitions`)."""
        late = [waiting for waiting in self._unreplicated if waiting.deadline <= now]
        if late:
            self._unreplicated = [waiting for waiting in self._unreplicated if waiting.deadline > now]
            heapq.heapify(self._unreplicated)
            for waiting in late:
                waiting.outcome.complete(ErrorCode.REQUEST_TIMED_OUT)
        for undeleted in self._undeleted:
            if undeleted.deadline <= now:
                undeleted.outcome.complete(ErrorCode.REQUEST_TIMED_OUT)
        self._forget_deleted()

    def is_replicated(self, offset: int) -> bool:
        """Return whether all in-sync replicas have the record at ``offset``."""
        return self.role is None or self.log.high_watermark > offset

    @property
    def low_watermark(self) -> int:
        """The smallest log start offset of all replicas, as far as this leader knows."""
        leadership = self.leadership
        return self.log.log_start_offset if leadership is None else leadership.low_watermark

    def deleted_everywhere(self, offset: int, timeout_s: float) -> Pending[ErrorCode]:
        """Return a pending NONE, completed when no replica has records below ``offset``, or a pending error.

        The errors: REQUEST_TIMED_OUT, NOT_LEADER_OR_FOLLOWER.
        """
        if self.leadership is None or self.low_watermark >= offset:
            return completed(ErrorCode.NONE)
        outcome: Pending[ErrorCode] = Pending()
        self._undeleted.append(Undeleted(offset, trio.current_time() + timeout_s, outcome))
        self._begin_to_wait()
        return outcome

    def _forget_deleted(self) -> None:
        self._undeleted = [undeleted for undeleted in self._undeleted if not undeleted.outcome.is_complete]

    # --- the high watermark ---

    def follower_fetched(self, node_id: int, offset: int, *, log_start_offset: int, broker_epoch: int) -> None:
        """Record a follower's fetch from ``offset`` on; this may advance the high watermark and extend the in-sync set.

        Raises BrokerError NOT_LEADER_OR_FOLLOWER if this broker does not lead, or the other one has no replica.
        """
        leadership = self.leadership
        if leadership is None or node_id not in leadership.followers:
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {node_id} is not a follower of this partition")
        leadership.fetched(node_id, offset, log_start_offset=log_start_offset, broker_epoch=broker_epoch)
        self.advance_high_watermark()
        if self._undeleted:
            low_watermark = leadership.low_watermark
            for undeleted in self._undeleted:
                if undeleted.offset <= low_watermark:
                    undeleted.outcome.complete(ErrorCode.NONE)
            self._forget_deleted()

    def drop_laggards(self) -> None:
        """Request an in-sync set without followers that lag; call this periodically, as lag grows with time."""
        leadership = self.leadership
        if leadership is not None:
            leadership.drop_laggards()
            self.advance_high_watermark()

    def advance_high_watermark(self) -> None:
        """Advance the leader's high watermark as far as possible, and complete the appends that waited for it."""
        leadership = self.leadership
        if leadership is not None and leadership.advance():
            self._high_watermark_moved()

    def _high_watermark_moved(self) -> None:
        high_watermark = self.log.high_watermark
        waiting = self._unreplicated
        code = self._code_of_replicated() if waiting else ErrorCode.NONE
        while waiting and waiting[0].offset < high_watermark:
            heapq.heappop(waiting).outcome.complete(code)
        for waiter in list(self.waiters):
            waiter.changed()

    def _fail_waiting(self) -> None:
        unreplicated, self._unreplicated = self._unreplicated, []
        undeleted, self._undeleted = self._undeleted, []
        for outcome in [waiting.outcome for waiting in unreplicated] + [waiting.outcome for waiting in undeleted]:
            outcome.complete(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # --- waiters ---

    def wake_waiters(self) -> None:
        """Notify delayed fetches that they must check this partition again."""
        for waiter in [*self.waiters, *self._followers_waiting]:
            waiter.changed()

    def watch(self, waiter: PartitionWaiter, *, is_follower: bool = False) -> None:
        """Notify ``waiter`` of every change from now on; followers also of records above the high watermark."""
        (self._followers_waiting if is_follower else self.waiters).add(waiter)

    @property
    def is_watched(self) -> bool:
        """Whether anything waits for changes."""
        return bool(self.waiters or self._followers_waiting)

    def unwatch(self, waiter: PartitionWaiter) -> None:
        """Remove a waiter."""
        self.waiters.discard(waiter)
        self._followers_waiting.discard(waiter)


def rules_of(config: LogConfig) -> AppendRules:
    """Return the rules for records of a topic with this configuration."""
    kept = TimestampType.LOG_APPEND_TIME if config.is_log_append_time else TimestampType.CREATE_TIME
    return AppendRules(
        max_message_bytes=config.max_message_bytes,
        timestamp_type=kept,
        timestamp_before_max_ms=config.message_timestamp_before_max_ms,
        timestamp_after_max_ms=config.message_timestamp_after_max_ms,
        keys_required=config.is_compacted,
    )
