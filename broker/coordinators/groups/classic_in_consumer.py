"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of classic members in a group of the consumer protocol.

A group is in this state during a migration. The broker assigns partitions for these members, as their leader did
before. JoinGroup contains the member's subscription and owned partitions, as a heartbeat of the consumer protocol does.
The generation is the member epoch, SyncGroup returns the assignment, and Heartbeat answers REBALANCE_IN_PROGRESS if the
member must rejoin to make progress.

Source: Kafka `GroupMetadataManager.classicGroupJoinToConsumerGroup` and its siblings.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from ....protocol.errors import BrokerError, DecodeError, ErrorCode
from ....protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ....protocol.messages.heartbeat import HeartbeatRequest
from ....protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ....protocol.messages.leave_group import MemberIdentity, MemberResponse
from ....protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ....protocol.topic_partition import TopicPartition
from ...config import BrokerConfig
from ...server.pending import Pending, completed
from .classic_group import CONSUMER_PROTOCOL_TYPE, failed_join
from .classic_member import MemberProtocol
from .classic_protocol import Committer, JoiningClient, rebalance_timeout_ms
from .consumer_embedding import embedded_assignment, named_partitions, subscription_of, subscription_version
from .consumer_fencing import check_commit, check_fetch, check_room, find_member, static_member
from .consumer_group import ConsumerGroup
from .consumer_groups import ConsumerGroups
from .consumer_member import ClassicSide, ConsumerMember, MemberState
from .consumer_protocol import new_member_id
from .group_log import GroupLog
from .member_deadlines import Deadline


class ClassicInConsumer:
    """A protocol (`GroupProtocol`) of groups of the consumer protocol, whose answers are complete at once."""

    def __init__(self, config: BrokerConfig, groups: ConsumerGroups, log: GroupLog) -> None:
        self._config = config
        self._groups = groups
        self._log = log

    # --- JoinGroup

    def join(
        self, group: ConsumerGroup, request: JoinGroupRequest, client: JoiningClient
    ) -> Pending[JoinGroupResponse]:
        """Add the member, or update its owned partitions; the answer comes at once and never makes it leader."""
        member_id = request.member_id or new_member_id()
        check_room(group, member_id, self._config.group_consumer_max_size)
        protocols = tuple(MemberProtocol(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols)
        _check_protocols(group, member_id, request.protocol_type, protocols)
        if not request.member_id and request.group_instance_id is None and client.takes_member_id:
            return completed(failed_join(member_id, ErrorCode.MEMBER_ID_REQUIRED))
        subscription = _subscription(protocols)
        group, before = _enter(group, request, member_id)
        told = replace(
            before,
            instance_id=before.instance_id if request.group_instance_id is None else request.group_instance_id,
            rack_id=subscription.rack_id or before.rack_id,
            rebalance_timeout_ms=rebalance_timeout_ms(request),
            subscribed_topics=frozenset(subscription.topics),
            client_id=client.client_id,
            client_host=client.client_host,
            classic=ClassicSide(request.session_timeout_ms, protocols),
        )
        owned = named_partitions(subscription.owned_partitions, self._groups.topics)
        member = self._groups.advance(group, told, owned)
        self._groups.deadlines.clear(Deadline.JOIN, group.group_id, member_id)
        self._groups.extend_session(group.group_id, member_id, request.session_timeout_ms)
        self._groups.deadlines.set(Deadline.SYNC, group.group_id, member_id, member.rebalance_timeout_ms)
        return completed(
            JoinGroupResponse(
                member_id=member.member_id,
                generation_id=member.epoch,
                protocol_type=CONSUMER_PROTOCOL_TYPE,
                protocol_name=protocols[0].name,
            )
        )

    # --- SyncGroup

    def sync(self, group: ConsumerGroup, request: SyncGroupRequest) -> Pending[SyncGroupResponse]:
        """Return the member's assignment."""
        member, side = _classic_member(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation_id)
        if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE):
            raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if request.protocol_name not in (None, side.protocols[0].name):
            raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._expect_join(group, member)
            raise BrokerError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._groups.deadlines.clear(Deadline.SYNC, group.group_id, member.member_id)
        self._groups.extend_session(group.group_id, member.member_id, side.session_timeout_ms)
        version = subscription_version(side.protocols[0].metadata)
        return completed(
            SyncGroupResponse(
                protocol_type=request.protocol_type,
                protocol_name=request.protocol_name,
                assignment=embedded_assignment(member.assigned, self._groups.topics, version),
            )
        )

    # --- Heartbeat

    def heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest) -> None:
        """Extend the member's session. Raises BrokerError, REBALANCE_IN_PROGRESS if the member must rejoin.

        It must rejoin if the group epoch has increased, if it must confirm revoked partitions, or if partitions that it
        waits for are free.
        """
        member, side = _classic_member(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation_id)
        self._groups.extend_session(group.group_id, member.member_id, side.session_timeout_ms)
        is_stable = member.state is MemberState.STABLE or group.waits_for_others(member)
        if member.epoch < group.epoch or not is_stable:
            self._expect_join(group, member)
            raise BrokerError(ErrorCode.REBALANCE_IN_PROGRESS)

    def _expect_join(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        self._groups.deadlines.set_once(Deadline.JOIN, group.group_id, member.member_id, member.rebalance_timeout_ms)

    # --- LeaveGroup

    def leave(self, group: ConsumerGroup, members: Sequence[MemberIdentity]) -> list[MemberResponse]:
        """Remove classic members, named by member id or, by an administrator, by instance id alone."""
        leaving: dict[str, None] = {}
        responses = []
        for identity in members:
            response = MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id)
            try:
                response.member_id = _leaving_member(group, identity).member_id
                leaving[response.member_id] = None
            except BrokerError as error:
                response.error_code = error.code
            responses.append(response)
        if leaving:
            self._groups.remove_members(group, leaving)
        return responses

    # --- committed offsets

    def check_commit(self, group: ConsumerGroup, committer: Committer, *, is_transactional: bool) -> None:
        """Check that the client may commit offsets; see `consumer_fencing.check_commit`. Raises BrokerError."""
        check_commit(group, committer, is_transactional=is_transactional)

    def check_fetch(self, group: ConsumerGroup, member_id: str | None, member_epoch: int) -> None:
        """Check that the client may fetch offsets; see `consumer_fencing.check_fetch`. Raises BrokerError."""
        check_fetch(group, member_id, member_epoch)

    # --- the life of a group

    def resume(self, group: ConsumerGroup) -> None:
        """Start a new session for each member of a group that was just loaded."""
        self._groups.resume(group)

    def hand_over(self, group: ConsumerGroup) -> None:
        """Drop a group that another broker coordinates now, and cancel the deadlines of its members."""
        self._groups.hand_over(group)

    def delete(self, group: ConsumerGroup, committed: Collection[TopicPartition]) -> None:
        """Write the tombstones of a group and of its offsets, and remove the group. Raises BrokerError."""
        self._log.forget(group.group_id, committed)
        self._groups.forget(group)


def _enter(group: ConsumerGroup, request: JoinGroupRequest, member_id: str) -> tuple[ConsumerGroup, ConsumerMember]:
    """Return the joining member, new or present, and the group in which it replaces its static predecessor, if any."""
    instance_id = request.group_instance_id
    if instance_id is not None and request.member_id:
        return group, static_member(group, instance_id, member_id)
    predecessor = None if instance_id is None else group.static_member(instance_id)
    if predecessor is not None:
        group = group.with_replaced(predecessor, member_id)
    return group, group.members.get(member_id) or ConsumerMember(member_id)


def _check_protocols(
    group: ConsumerGroup, member_id: str, protocol_type: str, protocols: tuple[MemberProtocol, ...]
) -> None:
    others = [member.classic for member in group.members.values() if member.classic is not None]
    is_common = any(
        all(protocol.name in {other.name for other in side.protocols} for side in others) for protocol in protocols
    )
    if protocol_type != CONSUMER_PROTOCOL_TYPE or not is_common:
        raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Member {member_id}'s protocols are not supported.")


def _subscription(protocols: tuple[MemberProtocol, ...]) -> ConsumerProtocolSubscription:
    """Return the member's subscription, which is the same in all its protocols.

    Raises BrokerError INCONSISTENT_GROUP_PROTOCOL.
    """
    try:
        return subscription_of(protocols[0].metadata)
    except DecodeError as error:
        raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from error


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> tuple[ConsumerMember, ClassicSide]:
    member = find_member(group, member_id, instance_id)
    if member.classic is None:
        raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member.member_id} does not use the classic protocol.")
    return member, member.classic


def _check_generation(member: ConsumerMember, generation_id: int) -> None:
    if member.epoch != generation_id:
        raise BrokerError(ErrorCode.ILLEGAL_GENERATION)


def _leaving_member(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
    instance_id, member_id = identity.group_instance_id, identity.member_id
    if instance_id is not None and not member_id:
        present = group.static_member(instance_id)
        member_id = "" if present is None else present.member_id
    return _classic_member(group, member_id, instance_id)[0]
