"""The rebalance of a classic group: each phase ends when all members have answered or their time is up.

A member has two timeouts. Its *session* ends if it sends no heartbeat, but never while one of its requests is pending.
A *rebalance* waits for the largest rebalance timeout of its members: first until they rejoin, then for their SyncGroup.
A member that misses it is removed; a static member that misses the first wait stays until its session ends (KIP-345).
Source: Kafka `GroupCoordinator`, `DelayedJoin`, `InitialDelayedJoin`, `DelayedSync`, `DelayedHeartbeat`.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Protocol

from ....protocol.errors import ErrorCode
from ....protocol.messages.sync_group import SyncGroupResponse
from ....storage.clock import Clock
from ...config import BrokerConfig
from ...server.pending import Pending
from ...server.timers import TimerQueue
from .classic_group import ClassicGroup, GroupState, failed_join
from .classic_member import ClassicMember

logger = logging.getLogger(__name__)

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""Session timeout of a new member, which cannot send heartbeats while its JoinGroup is pending."""

PREPARING = GroupState.PREPARING_REBALANCE
COMPLETING = GroupState.COMPLETING_REBALANCE


class GroupWriter(Protocol):
    """A writer that makes a group's state durable (`group_log.GroupLog`)."""

    def store_group(self, group: ClassicGroup) -> ErrorCode:
        """Write the group's present members and assignments; return the members' error, or NONE."""

    def store_generation(self, group: ClassicGroup) -> Pending[ErrorCode]:
        """Write the group; return a pending NONE, completed when it is replicated, or the members' error."""


class Rebalancer:
    """A driver that moves groups through their states; after each method the group's state needs no other call."""

    def __init__(self, config: BrokerConfig, clock: Clock, timers: TimerQueue, writer: GroupWriter) -> None:
        self._config = config
        self._clock = clock
        self._timers = timers
        self._writer = writer

    # --- sessions

    def extend_session(self, group: ClassicGroup, member: ClassicMember, timeout_ms: int | None = None) -> None:
        """Restart the member's session timeout."""
        delay_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
        if member.session is not None and member.session.is_pending:
            member.session.move(delay_ms)
        else:
            member.session = self._timers.schedule(delay_ms, lambda: self._session_ended(group, member))

    def hand_out_member_id(self, group: ClassicGroup, member_id: str, session_timeout_ms: int) -> None:
        """Reserve a member id, with which a client must rejoin (KIP-394), for one session timeout."""
        group.pending_members[member_id] = self._timers.schedule(
            session_timeout_ms, lambda: self.remove_pending_member(group, member_id)
        )

    def remove_pending_member(self, group: ClassicGroup, member_id: str) -> None:
        """Remove a reserved member id that no client has used."""
        group.remove(member_id)
        self.complete_join_if_all_joined(group)

    def remove_member(self, group: ClassicGroup, member: ClassicMember, reason: str) -> None:
        """Remove a member; the remaining members rebalance."""
        member.answer_join(failed_join("", ErrorCode.UNKNOWN_MEMBER_ID))
        member.answer_sync(SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        group.remove(member.member_id)
        if group.state in (GroupState.STABLE, COMPLETING):
            self.prepare(group, reason)
        else:
            self.complete_join_if_all_joined(group)

    def hand_over(self, group: ClassicGroup) -> None:
        """Refuse pending requests with NOT_COORDINATOR and cancel all timers: another broker coordinates the group."""
        for member in list(group.members.values()):
            member.answer_join(failed_join(member.member_id, ErrorCode.NOT_COORDINATOR))
            member.answer_sync(SyncGroupResponse(error_code=ErrorCode.NOT_COORDINATOR))
            group.remove(member.member_id)
        for member_id in list(group.pending_members):
            group.forget_pending(member_id)
        for timer in (group.rebalance_timer, group.sync_timer):
            if timer is not None:
                timer.cancel()

    def _session_ended(self, group: ClassicGroup, member: ClassicMember) -> None:
        if group.members.get(member.member_id) is not member:
            return
        is_parked = member.parked_join is not None or member.parked_sync is not None
        if member.is_new or not is_parked:
            logger.info("group %s: session of %s timed out", group.group_id, member.member_id)
            self.remove_member(group, member, f"session of {member.member_id} timed out")

    # --- waiting for members to rejoin

    def prepare_if_possible(self, group: ClassicGroup, reason: str) -> None:
        """Start a rebalance, unless one is already waiting for members."""
        if group.can_rebalance:
            self.prepare(group, reason)

    def prepare(self, group: ClassicGroup, reason: str) -> None:
        """Start a rebalance: all members must rejoin."""
        logger.info("group %s: rebalance after generation %d: %s", group.group_id, group.generation_id, reason)
        if group.state is COMPLETING:
            self.fail_assignment(group, ErrorCode.REBALANCE_IN_PROGRESS)
        self._stop_waiting_for_sync(group)
        is_first = group.state is GroupState.EMPTY
        group.transition_to(PREPARING, self._clock.now_ms())
        if is_first:
            delay_ms = self._config.group_initial_rebalance_delay_ms
            remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            self._wait_for_more_members(group, delay_ms, remaining_ms)
        else:
            self._wait_for_rejoin(group)

    def complete_join_if_all_joined(self, group: ClassicGroup) -> None:
        """Complete the wait for members if all have joined; a group's first rebalance waits for its full delay."""
        is_waiting_for_rejoin = group.rebalance_timer is not None and not group.is_waiting_for_more_members
        if group.state is PREPARING and is_waiting_for_rejoin and group.has_all_members_joined:
            self._complete_join(group)

    def _wait_for_rejoin(self, group: ClassicGroup) -> None:
        group.is_waiting_for_more_members = False
        self._set_rebalance_timer(group, group.rebalance_timeout_ms)
        self.complete_join_if_all_joined(group)

    def _wait_for_more_members(self, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
        """Wait `delay_ms` for more members, and again while new ones join, at most `remaining_ms` more."""

        def waited() -> None:
            if group.new_member_added and remaining_ms:
                group.new_member_added = False
                next_delay_ms = min(self._config.group_initial_rebalance_delay_ms, remaining_ms)
                self._wait_for_more_members(group, next_delay_ms, max(remaining_ms - delay_ms, 0))
            else:
                self._complete_join(group)

        group.is_waiting_for_more_members = True
        group.rebalance_timer = self._timers.schedule(delay_ms, waited)

    def _set_rebalance_timer(self, group: ClassicGroup, delay_ms: int) -> None:
        if group.rebalance_timer is not None:
            group.rebalance_timer.cancel()
        group.rebalance_timer = self._timers.schedule(delay_ms, lambda: self._complete_join(group))

    def _complete_join(self, group: ClassicGroup) -> None:
        if group.state is not PREPARING:
            return
        for member in [member for member in group.members.values() if member.parked_join is None]:
            if not member.is_static:
                logger.info("group %s: %s did not rejoin in time", group.group_id, member.member_id)
                group.remove(member.member_id)
        if group.members and not group.elect_leader_among_joined():
            # Only static members are left and none has rejoined: they stay until their sessions end.
            self._set_rebalance_timer(group, group.rebalance_timeout_ms)
            return
        if group.rebalance_timer is not None:
            group.rebalance_timer.cancel()
        group.rebalance_timer = None
        group.begin_generation(self._clock.now_ms())
        if group.members:
            self._let_members_in(group)
        else:
            self._writer.store_group(group)

    def _let_members_in(self, group: ClassicGroup) -> None:
        for member in group.members.values():
            member.answer_join(group.join_answer(member.member_id))
            self.extend_session(group, member)
            member.is_new = False
            group.pending_sync_members.add(member.member_id)
        generation_id = group.generation_id
        group.sync_timer = self._timers.schedule(
            group.rebalance_timeout_ms, lambda: self._sync_timed_out(group, generation_id)
        )

    # --- waiting for members to sync

    def member_synced(self, group: ClassicGroup, member_id: str) -> None:
        """Record that the member's SyncGroup has arrived."""
        group.pending_sync_members.discard(member_id)
        if not group.pending_sync_members:
            self._stop_waiting_for_sync(group)

    def assign(self, group: ClassicGroup, assignments: dict[str, bytes]) -> None:
        """Store the leader's assignment; then answer all members, and the group is stable."""
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        stored = self._writer.store_generation(group)
        stored.when_complete(partial(self._assigned, group, group.generation_id, stored))

    def _assigned(self, group: ClassicGroup, generation_id: int, stored: Pending[ErrorCode]) -> None:
        error = stored.result()
        if group.state is not COMPLETING or group.generation_id != generation_id:
            return
        if error:
            self.fail_assignment(group, error)
            self.prepare_if_possible(group, f"the assignment could not be stored: {error.name}")
        else:
            self._answer_syncs(group, ErrorCode.NONE)
            group.transition_to(GroupState.STABLE, self._clock.now_ms())

    def fail_assignment(self, group: ClassicGroup, error: ErrorCode) -> None:
        """Answer pending SyncGroups with an error: this generation has no assignment."""
        for member in group.members.values():
            member.assignment = b""
        self._answer_syncs(group, error)

    def _answer_syncs(self, group: ClassicGroup, error: ErrorCode) -> None:
        for member in group.members.values():
            response = SyncGroupResponse(error_code=error, assignment=member.assignment)
            if error is ErrorCode.NONE:
                response.protocol_type, response.protocol_name = group.protocol_type, group.protocol_name
            if member.answer_sync(response):
                self.extend_session(group, member)

    def _stop_waiting_for_sync(self, group: ClassicGroup) -> None:
        if group.sync_timer is not None:
            group.sync_timer.cancel()
            group.sync_timer = None

    def _sync_timed_out(self, group: ClassicGroup, generation_id: int) -> None:
        if generation_id != group.generation_id or group.state not in (COMPLETING, GroupState.STABLE):
            return
        missing = list(group.pending_sync_members)
        for member_id in missing:
            group.remove(member_id)
        if missing:
            self.prepare(group, f"no SyncGroup from {', '.join(missing)} in time")
