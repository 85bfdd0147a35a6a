"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup on a classic group, and the check of its offset commits.

Source: Kafka `GroupCoordinator.handleJoinGroup` and its siblings; KIP-345 (static members), KIP-394 (the coordinator
first assigns a member id), KIP-814 (a restarted static leader skips the assignment).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.messages.heartbeat import HeartbeatRequest
from ....protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ....protocol.messages.leave_group import MemberIdentity, MemberResponse
from ....protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ....protocol.topic_partition import TopicPartition
from ....storage.clock import Clock
from ...config import BrokerConfig
from ...server.pending import Pending
from .classic_group import NO_GENERATION, ClassicGroup, GroupState, failed_join
from .classic_member import ClassicMember, MemberProtocol
from .group_log import GroupLog
from .group_map import GroupMap
from .rebalance import NEW_MEMBER_JOIN_TIMEOUT_MS, Rebalancer


@dataclass(frozen=True, slots=True)
class JoiningClient:
    """A client that sends a JoinGroup, with the abilities of its request version."""

    client_id: str
    client_host: str
    takes_member_id: bool = False
    """Whether the client understands MEMBER_ID_REQUIRED (JoinGroup v4+)."""
    skips_assignment: bool = False
    """Whether a restarted static leader can skip the assignment (JoinGroup v9+)."""


class Committer(NamedTuple):
    """A client that commits offsets for a group: a member with its generation, or a client outside of the group."""

    group_id: str
    member_id: str = ""
    generation_id: int = NO_GENERATION
    group_instance_id: str | None = None
    knows_member_epochs: bool = True
    """Whether the client understands the errors of the consumer protocol (OffsetCommit v9+, KIP-848)."""

    @property
    def claims_membership(self) -> bool:
        """Whether the request says that the client is a member."""
        return self.generation_id >= 0 or bool(self.member_id) or self.group_instance_id is not None


class ClassicProtocol:
    """A handler of the four requests; each method returns at once, joins and syncs with a pending answer."""

    def __init__(
        self, config: BrokerConfig, clock: Clock, groups: GroupMap, rebalancer: Rebalancer, log: GroupLog
    ) -> None:
        self._config = config
        self._clock = clock
        self._groups = groups
        self._rebalancer = rebalancer
        self._log = log

    # --- JoinGroup

    def join(self, group: ClassicGroup, request: JoinGroupRequest, client: JoiningClient) -> Pending[JoinGroupResponse]:
        """Add the client to the group's next generation, and start a rebalance if needed."""
        answer: Pending[JoinGroupResponse] = Pending(ends_with_client=True)
        protocols = [MemberProtocol(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols]
        if not self._has_room_for(group, request.member_id):
            group.remove(request.member_id)
            answer.complete(failed_join("", ErrorCode.GROUP_MAX_SIZE_REACHED))
        elif group.state is GroupState.DEAD:
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif not group.supports(request.protocol_type, protocols):
            raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif len({protocol.name for protocol in protocols}) < len(protocols) and not _is_asking_for_id(request, client):
            # Kafka 3.9 never answers this.
            answer.complete(failed_join("", ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        elif not request.member_id:
            self._join_as_stranger(group, request, protocols, client, answer)
        elif request.member_id in group.pending_members and request.group_instance_id is None:
            self._add_member(group, request.member_id, request, protocols, client, answer)
        else:
            self._rejoin(group, request, protocols, answer)
        self._rebalancer.complete_join_if_all_joined(group)
        return answer

    def _has_room_for(self, group: ClassicGroup, member_id: str) -> bool:
        """Return whether `group.max.size` allows this member; present and joining members may stay (KIP-389)."""
        limit = self._config.group_max_size
        member = group.members.get(member_id)
        if group.state is GroupState.PREPARING_REBALANCE:
            return (member is not None and member.parked_join is not None) or group.awaiting_join_count < limit
        if group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return member is not None or len(group.members) < limit
        return True

    def _join_as_stranger(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        protocols: list[MemberProtocol],
        client: JoiningClient,
        answer: Pending[JoinGroupResponse],
    ) -> None:
        member_id = group.new_member_id(client.client_id, request.group_instance_id)
        instance_id = request.group_instance_id
        if instance_id is not None and instance_id in group.static_members:
            self._replace_static_member(group, instance_id, member_id, request, protocols, client, answer)
        elif _is_asking_for_id(request, client):
            self._rebalancer.hand_out_member_id(group, member_id, request.session_timeout_ms)
            answer.complete(failed_join(member_id, ErrorCode.MEMBER_ID_REQUIRED))
        else:
            self._add_member(group, member_id, request, protocols, client, answer)

    def _add_member(
        self,
        group: ClassicGroup,
        member_id: str,
        request: JoinGroupRequest,
        protocols: list[MemberProtocol],
        client: JoiningClient,
        answer: Pending[JoinGroupResponse],
    ) -> None:
        member = ClassicMember(
            member_id=member_id,
            group_instance_id=request.group_instance_id,
            client_id=client.client_id,
            client_host=client.client_host,
            rebalance_timeout_ms=rebalance_timeout_ms(request),
            session_timeout_ms=request.session_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=protocols,
            is_new=True,
            parked_join=answer,
        )
        if group.state is GroupState.PREPARING_REBALANCE and group.generation_id == 0:
            group.new_member_added = True
        group.add(member)
        self._rebalancer.extend_session(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalancer.prepare_if_possible(group, f"{member_id} joins")

    def _replace_static_member(
        self,
        group: ClassicGroup,
        instance_id: str,
        member_id: str,
        request: JoinGroupRequest,
        protocols: list[MemberProtocol],
        client: JoiningClient,
        answer: Pending[JoinGroupResponse],
    ) -> None:
        """Replace a restarted static member by its new id, without a rebalance if that is possible."""
        old_leader_id = group.leader_id
        member = group.replace_static_member(instance_id, group.static_members[instance_id], member_id)
        self._update(member, request, protocols, answer)
        self._rebalancer.extend_session(group, member)
        if group.state is GroupState.COMPLETING_REBALANCE:
            # The leader may be assigning to the old member id right now.
            self._rebalancer.prepare(group, f"static member {instance_id} has restarted")
        elif group.state is GroupState.STABLE:
            if group.select_protocol() != group.protocol_name:
                self._rebalancer.prepare(group, f"static member {instance_id} has restarted with other protocols")
                return
            error = self._log.store_group(group)
            if error:
                member.answer_join(failed_join("", error))
            elif client.skips_assignment:
                is_leader = group.leader_id == member_id
                member.answer_join(group.join_answer(member_id, skip_assignment=is_leader))
            else:
                # An answer that names the old leader id keeps a restarted leader from assigning, which a stable group
                # would ignore.
                member.answer_join(group.join_answer(member_id, leader_id=old_leader_id, as_leader=False))

    def _rejoin(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        protocols: list[MemberProtocol],
        answer: Pending[JoinGroupResponse],
    ) -> None:
        member = group.member(request.member_id, request.group_instance_id)
        is_unchanged = list(member.protocols) == protocols
        is_leader = member.member_id == group.leader_id
        if group.state is GroupState.COMPLETING_REBALANCE and is_unchanged:
            # Its first answer may have been lost.
            answer.complete(group.join_answer(member.member_id))
        elif group.state is GroupState.STABLE and is_unchanged and not is_leader:
            answer.complete(group.join_answer(member.member_id))
        else:
            self._update(member, request, protocols, answer)
            self._rebalancer.prepare_if_possible(group, f"{'leader ' if is_leader else ''}{member.member_id} rejoins")

    @staticmethod
    def _update(
        member: ClassicMember,
        request: JoinGroupRequest,
        protocols: list[MemberProtocol],
        answer: Pending[JoinGroupResponse],
    ) -> None:
        if member.parked_join is not None:
            # The client has abandoned its earlier request, whose connection must not stay blocked.
            member.answer_join(failed_join(member.member_id, ErrorCode.REBALANCE_IN_PROGRESS))
        member.protocols = protocols
        member.rebalance_timeout_ms = rebalance_timeout_ms(request)
        member.session_timeout_ms = request.session_timeout_ms
        member.parked_join = answer

    # --- SyncGroup

    def sync(self, group: ClassicGroup, request: SyncGroupRequest) -> Pending[SyncGroupResponse]:
        """Store the leader's assignment; answer each member with its part once the assignment is stored."""
        answer: Pending[SyncGroupResponse] = Pending(ends_with_client=True)
        member = self._syncing_member(group, request)
        self._rebalancer.member_synced(group, member.member_id)
        if group.state is GroupState.STABLE:
            answer.complete(
                SyncGroupResponse(
                    protocol_type=group.protocol_type,
                    protocol_name=group.protocol_name,
                    assignment=member.assignment,
                )
            )
            self._rebalancer.extend_session(group, member)
            return answer
        member.answer_sync(SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        member.parked_sync = answer
        if group.leader_id == member.member_id:
            self._rebalancer.assign(group, {each.member_id: bytes(each.assignment) for each in request.assignments})
        return answer

    @staticmethod
    def _syncing_member(group: ClassicGroup, request: SyncGroupRequest) -> ClassicMember:
        """Return the member that sent a SyncGroup. Raises BrokerError."""
        if group.state is GroupState.DEAD:
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        member = group.member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation_id:
            raise BrokerError(ErrorCode.ILLEGAL_GENERATION)
        if request.protocol_type is not None and request.protocol_type != group.protocol_type:
            raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if request.protocol_name is not None and request.protocol_name != group.protocol_name:
            raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.state is GroupState.PREPARING_REBALANCE:
            raise BrokerError(ErrorCode.REBALANCE_IN_PROGRESS)
        return member

    # --- Heartbeat

    def heartbeat(self, group: ClassicGroup, request: HeartbeatRequest) -> None:
        """Extend the member's session. Raises BrokerError, REBALANCE_IN_PROGRESS if the member must rejoin."""
        if group.state is GroupState.DEAD:
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        member = group.member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation_id:
            raise BrokerError(ErrorCode.ILLEGAL_GENERATION)
        self._rebalancer.extend_session(group, member)
        if group.state is GroupState.PREPARING_REBALANCE:
            raise BrokerError(ErrorCode.REBALANCE_IN_PROGRESS)

    # --- committed offsets

    def check_commit(self, group: ClassicGroup, committer: Committer, *, is_transactional: bool) -> None:
        """Check that the client may commit offsets; a commit by a member extends its session. Raises BrokerError.

        An empty group accepts commits from clients that claim no membership. In a group with members only members may
        commit, except transactional producers before KIP-447, which name no member.
        """
        if group.state is GroupState.DEAD:
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if committer.generation_id < 0 and group.is_empty:
            return
        if committer.claims_membership:
            group.member(committer.member_id, committer.group_instance_id)
            if committer.generation_id != group.generation_id:
                raise BrokerError(ErrorCode.ILLEGAL_GENERATION)
        elif not is_transactional and not group.is_empty:
            raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)
        if group.state is GroupState.COMPLETING_REBALANCE and not is_transactional:
            raise BrokerError(ErrorCode.REBALANCE_IN_PROGRESS)
        member = group.members.get(committer.member_id)
        if member is not None:
            self._rebalancer.extend_session(group, member)

    def check_fetch(self, group: ClassicGroup, member_id: str | None, member_epoch: int) -> None:
        """Do nothing: any client may fetch the committed offsets of a classic group."""

    # --- LeaveGroup

    def leave(self, group: ClassicGroup, members: Sequence[MemberIdentity]) -> list[MemberResponse]:
        """Remove members, named by member id or, by an administrator, by instance id alone."""
        return [self._leave_one(group, leaving) for leaving in members]

    def _leave_one(self, group: ClassicGroup, leaving: MemberIdentity) -> MemberResponse:
        response = MemberResponse(member_id=leaving.member_id, group_instance_id=leaving.group_instance_id)
        try:
            self._remove(group, leaving)
        except BrokerError as refusal:
            response.error_code = refusal.code
        return response

    def _remove(self, group: ClassicGroup, leaving: MemberIdentity) -> None:
        """Remove a member, or an assigned member id with which no client has joined. Raises BrokerError."""
        member_id = leaving.member_id
        if member_id in group.pending_members:
            self._rebalancer.remove_pending_member(group, member_id)
            return
        if not member_id:
            member_id = group.static_members.get(leaving.group_instance_id or "", "")
        member = group.member(member_id, leaving.group_instance_id)
        reason = leaving.reason or "it leaves"
        self._rebalancer.remove_member(group, member, f"{member_id} has left: {reason}")

    # --- the life of a group

    def resume(self, group: ClassicGroup) -> None:
        """Start a new session for each member of a group that was just loaded."""
        for member in group.members.values():
            self._rebalancer.extend_session(group, member)
        if len(group.members) > self._config.group_max_size:
            self._rebalancer.prepare(group, "it has more members than group.max.size allows now")

    def hand_over(self, group: ClassicGroup) -> None:
        """Refuse pending requests with NOT_COORDINATOR and cancel all timers: another broker coordinates the group."""
        self._groups.remove(group.group_id)
        self._rebalancer.hand_over(group)

    def delete(self, group: ClassicGroup, committed: Collection[TopicPartition]) -> None:
        """Write the tombstones of a group and of its offsets, and remove the group. Raises BrokerError."""
        # For a group that never had members, only offsets were written.
        self._log.forget(group.group_id, committed, whole_group=group.generation_id > 0)
        for member_id in list(group.pending_members):
            group.forget_pending(member_id)
        group.transition_to(GroupState.DEAD, self._clock.now_ms())
        self._groups.remove(group.group_id)


def _is_asking_for_id(request: JoinGroupRequest, client: JoiningClient) -> bool:
    """Return whether the answer is only a member id with which the client must rejoin (KIP-394)."""
    return client.takes_member_id and not request.member_id and request.group_instance_id is None


def rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    """Return the rebalance timeout, which in JoinGroup v0 is the session timeout."""
    return request.session_timeout_ms if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms
