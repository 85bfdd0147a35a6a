"""Changes of the protocol of groups with members: classic to consumer and back (KIP-848, online migration).

An empty group always takes the protocol of the client that joins. For a group with members,
`group.consumer.migration.policy` decides: *upgrade* when the first member of the consumer protocol joins a classic
group, *downgrade* when the last one has left and only members of the classic protocol remain. In between, members of
both protocols share a group of the consumer protocol (`classic_in_consumer.py`).

Source: Kafka `GroupMetadataManager.convertToConsumerGroup` and `convertToClassicGroup`,
`ConsumerGroup.fromClassicGroup`, `ClassicGroup.fromConsumerGroup`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from ....protocol.errors import BrokerError, DecodeError, ErrorCode
from ....protocol.messages.sync_group import SyncGroupResponse
from ....storage.clock import Clock
from ...config import BrokerConfig
from .assignment import NOTHING
from .classic_group import CONSUMER_PROTOCOL_TYPE, ClassicGroup, GroupState, failed_join
from .classic_member import ClassicMember
from .consumer_embedding import assignment_of, embedded_assignment, subscription_of, subscription_version
from .consumer_group import ConsumerGroup
from .consumer_member import ClassicSide, ConsumerMember
from .current_topics import CurrentTopics
from .group_map import GroupMap
from .rebalance import Rebalancer

logger = logging.getLogger(__name__)

UPGRADES = {"upgrade", "bidirectional"}
DOWNGRADES = {"downgrade", "bidirectional"}


class Migration:
    """A converter between classic groups and groups of the consumer protocol."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        groups: GroupMap,
        rebalancer: Rebalancer,
        topics: CurrentTopics,
    ) -> None:
        self._config = config
        self._clock = clock
        self._groups = groups
        self._rebalancer = rebalancer
        self._topics = topics

    # --- upgrade

    def upgraded(self, group: ClassicGroup) -> ConsumerGroup:
        """Return the group of the consumer protocol that a classic group becomes, without changing the classic group.

        Its members keep their assignments and, until each of them is replaced, their protocol. Raises BrokerError
        GROUP_ID_NOT_FOUND if the group must stay classic.
        """
        group_id = group.group_id
        if group.state is GroupState.EMPTY:
            return ConsumerGroup(group_id)
        if not self._may_upgrade(group):
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        try:
            members = [self._consumer_member(group, member) for member in group.members.values()]
        except DecodeError as error:
            raise BrokerError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"Cannot upgrade the classic group {group_id} to consumer group because the embedded consumer "
                "protocol is malformed.",
            ) from error
        return ConsumerGroup(
            group_id,
            epoch=group.generation_id,
            assignment_epoch=group.generation_id,
            members={member.member_id: member for member in members},
            target={member.member_id: member.assigned for member in members},
        )

    def _may_upgrade(self, group: ClassicGroup) -> bool:
        policy = self._config.group_consumer_migration_policy.lower()
        is_small_enough = len(group.members) <= self._config.group_consumer_max_size
        return policy in UPGRADES and group.is_consumer_group and is_small_enough

    def _consumer_member(self, group: ClassicGroup, member: ClassicMember) -> ConsumerMember:
        protocol_name = group.protocol_name or member.protocols[0].name
        subscription = subscription_of(member.metadata_for(protocol_name))
        return ConsumerMember(
            member_id=member.member_id,
            epoch=group.generation_id,
            previous_epoch=group.generation_id,
            instance_id=member.group_instance_id,
            rack_id=subscription.rack_id or None,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topics=frozenset(subscription.topics),
            classic=ClassicSide(member.session_timeout_ms, tuple(member.protocols)),
            assigned=assignment_of(member.assignment, self._topics) if member.assignment else NOTHING,
        )

    def retire(self, group: ClassicGroup) -> None:
        """Answer the pending requests of an upgraded classic group with REBALANCE_IN_PROGRESS; cancel its timers."""
        for member in group.members.values():
            member.answer_join(failed_join(member.member_id, ErrorCode.REBALANCE_IN_PROGRESS))
            member.answer_sync(SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
            if member.session is not None:
                member.session.cancel()
        for member_id in list(group.pending_members):
            group.forget_pending(member_id)
        for timer in (group.rebalance_timer, group.sync_timer):
            if timer is not None:
                timer.cancel()
        group.transition_to(GroupState.DEAD, self._clock.now_ms())

    # --- downgrade

    def may_downgrade(self, group: ConsumerGroup, leaving: Collection[str]) -> bool:
        """Return whether a group becomes classic when these members, its last of the consumer protocol, leave."""
        staying = [member for member_id, member in group.members.items() if member_id not in leaving]
        if not staying or any(member.classic is None for member in staying):
            return False
        if all(group.members[member_id].classic is not None for member_id in leaving):
            return False
        policy = self._config.group_consumer_migration_policy.lower()
        if policy not in DOWNGRADES or len(staying) > self._config.group_max_size:
            logger.info("group %s keeps the consumer protocol, though only classic members remain", group.group_id)
            return False
        return True

    def downgraded(self, group: ConsumerGroup, leaving: Collection[str]) -> ClassicGroup:
        """Return the classic group that a group becomes when these members leave, without changing the group."""
        classic = ClassicGroup(group.group_id, state_timestamp_ms=self._clock.now_ms())
        classic.state = GroupState.STABLE
        classic.generation_id = group.epoch
        for member_id, member in group.members.items():
            if member_id not in leaving and member.classic is not None:
                classic.add(self._classic_member(group, member, member.classic))
        classic.protocol_name = classic.select_protocol()
        classic.subscribed_topics = classic.compute_subscribed_topics()
        return classic

    def _classic_member(self, group: ConsumerGroup, member: ConsumerMember, side: ClassicSide) -> ClassicMember:
        version = subscription_version(side.protocols[0].metadata)
        return ClassicMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            session_timeout_ms=side.session_timeout_ms,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocols=side.protocols,
            assignment=embedded_assignment(group.target.get(member.member_id, NOTHING), self._topics, version),
        )

    def resume(self, group: ClassicGroup) -> None:
        """Add a downgraded group to the classic groups, and start a rebalance in which its members rejoin."""
        self._groups.put(group)
        for member in group.members.values():
            self._rebalancer.extend_session(group, member)
        self._rebalancer.prepare(group, f"Downgrade group {group.group_id} from consumer to classic.")
