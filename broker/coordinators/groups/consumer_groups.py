"""Changes of groups of the consumer protocol: their present values, their log, and the deadlines of their members.

Every change has three steps, made only here: compute the group's next value, write the difference, replace the old
value. If the write fails, nothing has changed.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from ....protocol.errors import BrokerError, ErrorCode
from ...config import BrokerConfig
from ...server.timers import TimerQueue
from ..internal_log.coordinator_log import KeyValue
from .assignment import Assignment
from .assignors import assignors_by_name
from .consumer_group import ConsumerGroup
from .consumer_group_log import ConsumerGroupLog, tombstones
from .consumer_member import ConsumerMember, MemberState
from .current_topics import CurrentTopics
from .group_log import classic_group_record, classic_group_tombstone
from .group_map import GroupMap
from .member_deadlines import Deadline, MemberDeadlines
from .migration import Migration

logger = logging.getLogger(__name__)

RETRY_MS = 1000
"""Time until the removal of a member is retried after the log has refused the records."""


class ConsumerGroups:
    """Every operation that changes a group of the consumer protocol, in the map of all groups."""

    def __init__(
        self,
        config: BrokerConfig,
        groups: GroupMap,
        timers: TimerQueue,
        log: ConsumerGroupLog,
        topics: CurrentTopics,
        migration: Migration,
    ) -> None:
        self._config = config
        self._groups = groups
        self._log = log
        self._migration = migration
        self.topics = topics
        self.assignors = assignors_by_name(config.group_consumer_assignors)
        self.deadlines = MemberDeadlines(timers, self._missed)

    def resume(self, group: ConsumerGroup) -> None:
        """Start a new session for each member of a group that was just loaded."""
        for member in group.members.values():
            self.extend_session(group.group_id, member.member_id)
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                self._watch_revocation(group.group_id, member)

    # --- finding groups

    def existing(self, group_id: str) -> ConsumerGroup:
        """Return a group. Raises BrokerError GROUP_ID_NOT_FOUND, for a classic group as well."""
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if group is not None:
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")

    def for_joining(self, group_id: str) -> ConsumerGroup:
        """Return the group for a client that joins: an existing group, an upgraded classic group, or a new group.

        Raises BrokerError GROUP_ID_NOT_FOUND for a classic group that must stay classic.
        """
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        return ConsumerGroup(group_id) if group is None else self._migration.upgraded(group)

    # --- changing groups

    def advance(self, group: ConsumerGroup, member: ConsumerMember, owned: Assignment | None) -> ConsumerMember:
        """Apply the heartbeat of a member, perhaps a new one; return the member after its step.

        `group` may be ahead of what is stored (a static member replaced, a classic group upgraded). Raises BrokerError
        as `ConsumerGroup.advance` does, or with the log's refusal.
        """
        after = group.advance(member, owned, self.topics, self.assignors)
        classic = self._groups.classic(group.group_id)
        self._change(
            self._groups.consumer(group.group_id) or ConsumerGroup(group.group_id),
            after,
            preceding=() if classic is None else (classic_group_tombstone(group.group_id),),
        )
        if classic is not None:
            self._migration.retire(classic)
            for migrated in after.members.values():
                if migrated.classic is not None:
                    self.extend_session(group.group_id, migrated.member_id, migrated.classic.session_timeout_ms)
        reconciled = after.members[member.member_id]
        if reconciled != member and reconciled.classic is None:
            self._watch_revocation(group.group_id, reconciled)
        return reconciled

    def remove_members(self, group: ConsumerGroup, member_ids: Collection[str]) -> None:
        """Remove members; a group of which only classic members remain may become classic again.

        Raises BrokerError if the records cannot be written.
        """
        if self._migration.may_downgrade(group, member_ids):
            classic = self._migration.downgraded(group, member_ids)
            self._log.write(group.group_id, [*tombstones(group), classic_group_record(classic)])
            self.hand_over(group)
            self._migration.resume(classic)
            return
        self._change(group, group.remove(member_ids, self.topics))

    def leave_for_a_while(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Record that a static member has left and may return before its session ends."""
        self._change(group, group.with_member(member.left_for_a_while()))

    def forget(self, group: ConsumerGroup) -> None:
        """Delete the group. Raises BrokerError if the tombstones cannot be written."""
        self._log.write(group.group_id, tombstones(group))
        self._groups.remove(group.group_id)

    def hand_over(self, group: ConsumerGroup) -> None:
        """Drop a group that another broker coordinates now, and cancel the deadlines of its members."""
        self._groups.remove(group.group_id)
        for member_id in group.members:
            self.deadlines.clear_all(group.group_id, member_id)

    def _change(self, before: ConsumerGroup, after: ConsumerGroup, *, preceding: Sequence[KeyValue] = ()) -> None:
        if after is before:
            return
        self._log.store(before, after, preceding=preceding)
        self._groups.put(after)
        for member_id in before.members.keys() - after.members.keys():
            self.deadlines.clear_all(after.group_id, member_id)
        if after.epoch != before.epoch:
            logger.info("group %s: epoch %d, %d members", after.group_id, after.epoch, len(after.members))

    # --- deadlines

    def extend_session(self, group_id: str, member_id: str, timeout_ms: int | None = None) -> None:
        """Restart the member's session timeout."""
        default_ms = self._config.group_consumer_session_timeout_ms
        self.deadlines.set(Deadline.SESSION, group_id, member_id, default_ms if timeout_ms is None else timeout_ms)

    def _watch_revocation(self, group_id: str, member: ConsumerMember) -> None:
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            self.deadlines.set(Deadline.REBALANCE, group_id, member.member_id, member.rebalance_timeout_ms)
        else:
            self.deadlines.clear(Deadline.REBALANCE, group_id, member.member_id)

    def _missed(self, group_id: str, member_id: str, deadline: Deadline) -> None:
        group = self._groups.consumer(group_id)
        if group is None or member_id not in group.members:
            return
        logger.info("group %s: removing %s: %s", group_id, member_id, deadline.value)
        try:
            self.remove_members(group, [member_id])
        except BrokerError as error:
            logger.warning("group %s: %s could not be removed: %s", group_id, member_id, error.code.name)
            self.deadlines.set(deadline, group_id, member_id, RETRY_MS)
