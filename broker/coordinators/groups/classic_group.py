"""The state of a classic group: its members, its generation and the transitions between its states.

              first member joins                 all members rejoined, or the rebalance timed out
      Empty ----------------------> PreparingRebalance ------------------> CompletingRebalance
        ^                              ^      |                                 |        |
        |      no member left          |      |  a member joins, leaves,        |        |  the leader's
        +------------------------------|------+  or does not sync in time       |        |  assignment came
        |                              +----------------------------------------+        v
        |                              +---------------------------------------------- Stable
        v
       Dead    (no members, no offsets: the group is forgotten)

Source: Kafka `GroupMetadata`, `GroupState`. This module neither waits, nor writes records, nor reads the clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import Enum
from uuid import uuid4

from ....protocol.codec import decode
from ....protocol.errors import BrokerError, DecodeError, ErrorCode
from ....protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ....protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from ....protocol.messages.sync_group import SyncGroupResponse
from ...server.timers import Timer
from .classic_member import ClassicMember, MemberProtocol

CONSUMER_PROTOCOL_TYPE = "consumer"
NO_GENERATION = -1
SUBSCRIPTION_VERSIONS = (0, 3)


class GroupState(Enum):
    """A state of a classic group; its value is the name that tools show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_PREDECESSORS = {
    GroupState.EMPTY: {GroupState.PREPARING_REBALANCE},
    GroupState.PREPARING_REBALANCE: {GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY},
    GroupState.COMPLETING_REBALANCE: {GroupState.PREPARING_REBALANCE},
    GroupState.STABLE: {GroupState.COMPLETING_REBALANCE},
    GroupState.DEAD: set(GroupState),
}


class ClassicGroup:
    """A record of the members and the generation of one group; `members` is in the order of joining."""

    def __init__(self, group_id: str, *, state_timestamp_ms: int | None = None) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.state_timestamp_ms = state_timestamp_ms
        """Start of the present state, in ms since 1970; None if loaded from a record of Kafka before 2.1."""
        self.generation_id = 0
        self.protocol_type: str | None = None
        """`consumer`, `connect` and so on; None for a group that only commits offsets."""
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        """Member ids by instance id."""
        self.pending_members: dict[str, Timer] = {}
        """Assigned member ids with which no client has joined yet (KIP-394), each with its timer."""
        self.pending_sync_members: set[str] = set()
        """Members of this generation whose SyncGroup has not arrived."""
        self.new_member_added = False
        """Whether a member joined while the first rebalance waited for more members."""
        self.is_waiting_for_more_members = False
        """Whether the present rebalance is a group's first, which waits for its full delay (KIP-134)."""
        self.subscribed_topics: set[str] | None = None
        """Topics that the members subscribe to; None if the subscriptions cannot be read."""
        self.rebalance_timer: Timer | None = None
        self.sync_timer: Timer | None = None

    # --- state

    def transition_to(self, state: GroupState, now_ms: int) -> None:
        """Enter a state, which must be a valid successor of the present one."""
        assert self.state in _PREDECESSORS[state], f"{self.group_id}: {self.state.value} -> {state.value}"
        self.state = state
        self.state_timestamp_ms = now_ms

    @property
    def can_rebalance(self) -> bool:
        """Whether a new rebalance may begin now."""
        return self.state in _PREDECESSORS[GroupState.PREPARING_REBALANCE]

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members, and no rebalance is in progress."""
        return self.state is GroupState.EMPTY

    @property
    def is_unused(self) -> bool:
        """Whether the group has no members, and no client is about to join."""
        return self.is_empty and not self.members and not self.pending_members

    @property
    def is_consumer_group(self) -> bool:
        """Whether members use the consumer protocol type, so that subscriptions can be read."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    # --- members

    def new_member_id(self, client_id: str, group_instance_id: str | None) -> str:
        """Return a new unique member id: the instance or client id, then a random UUID."""
        return f"{client_id if group_instance_id is None else group_instance_id}-{uuid4()}"

    def add(self, member: ClassicMember) -> None:
        """Add a member; the first one becomes the leader and sets the protocol type."""
        if not self.members:
            self.protocol_type = member.protocol_type
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self.forget_pending(member.member_id)

    def remove(self, member_id: str) -> None:
        """Remove a member or a pending member id; if the leader is removed, another member becomes leader."""
        member = self.members.pop(member_id, None)
        if member is not None:
            if member.group_instance_id is not None:
                self.static_members.pop(member.group_instance_id, None)
            if member.session is not None:
                member.session.cancel()
        if member_id == self.leader_id:
            self.leader_id = next(iter(self.members), None)
        self.forget_pending(member_id)
        self.pending_sync_members.discard(member_id)

    def forget_pending(self, member_id: str) -> None:
        """Remove a pending member id and cancel its timer."""
        timer = self.pending_members.pop(member_id, None)
        if timer is not None:
            timer.cancel()

    def replace_static_member(self, group_instance_id: str, old_member_id: str, new_member_id: str) -> ClassicMember:
        """Replace the id of a restarted static member; pending requests with the old id are fenced (KIP-345)."""
        member = self.members.pop(old_member_id)
        member.answer_join(failed_join(old_member_id, ErrorCode.FENCED_INSTANCE_ID))
        member.answer_sync(SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID))
        member.member_id = new_member_id
        self.members[new_member_id] = member
        if self.leader_id == old_member_id:
            self.leader_id = new_member_id
        self.static_members[group_instance_id] = new_member_id
        return member

    def member(self, member_id: str, group_instance_id: str | None) -> ClassicMember:
        """Return the member that sent a request.

        Raises BrokerError UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if the instance has another member id now.
        """
        if group_instance_id is not None:
            current = self.static_members.get(group_instance_id)
            if current is not None and current != member_id:
                raise BrokerError(ErrorCode.FENCED_INSTANCE_ID)
            if current is None:
                raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)
        member = self.members.get(member_id)
        if member is None:
            raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    @property
    def awaiting_join_count(self) -> int:
        """The number of members whose JoinGroup is pending."""
        return sum(member.parked_join is not None for member in self.members.values())

    @property
    def has_all_members_joined(self) -> bool:
        """Whether all members have rejoined, so that the rebalance can complete."""
        return not self.pending_members and all(member.parked_join is not None for member in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        """The time that a rebalance waits: the largest rebalance timeout of all members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def elect_leader_among_joined(self) -> bool:
        """Ensure that the leader has rejoined, by electing another if needed; return False if no member has."""
        leader = self.members.get(self.leader_id or "")
        if leader is None:
            return False
        if leader.parked_join is None:
            joined = next((member for member in self.members.values() if member.parked_join is not None), None)
            if joined is None:
                return False
            self.leader_id = joined.member_id
        return True

    # --- protocols

    def supports(self, protocol_type: str, protocols: Sequence[MemberProtocol]) -> bool:
        """Return whether a client with this protocol type and these protocols can be a member."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type and protocols)
        common = self._common_protocols()
        return self.protocol_type == protocol_type and any(protocol.name in common for protocol in protocols)

    def select_protocol(self) -> str:
        """Return the protocol with the most votes among those that all members support; of a tie the last by name."""
        candidates = self._common_protocols()
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return max(votes, key=lambda name: (votes[name], name))

    def _common_protocols(self) -> set[str]:
        supporters = Counter(name for member in self.members.values() for name in member.protocol_names)
        return {name for name, number in supporters.items() if number == len(self.members)}

    # --- generations

    def begin_generation(self, now_ms: int) -> None:
        """Complete a rebalance: enter CompletingRebalance with a chosen protocol, or Empty without members."""
        self.generation_id += 1
        self.pending_sync_members.clear()
        self.protocol_name = self.select_protocol() if self.members else None
        self.subscribed_topics = self.compute_subscribed_topics()
        self.transition_to(GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY, now_ms)

    def compute_subscribed_topics(self) -> set[str] | None:
        """Return the topics that members subscribe to; None if the subscriptions cannot be read."""
        if not self.is_consumer_group:
            return None
        if not self.members:
            return set()
        if self.protocol_name is None:
            return None
        try:
            return {
                topic
                for member in self.members.values()
                for topic in subscribed_topics(member.metadata_for(self.protocol_name))
            }
        except DecodeError:
            # Kafka accepts any bytes, since old librdkafka and other clients had their own layouts.
            return None

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether a member subscribes to the topic; True if that is not known."""
        return self.subscribed_topics is None or topic in self.subscribed_topics

    def join_answer(
        self,
        member_id: str,
        *,
        leader_id: str | None = None,
        skip_assignment: bool = False,
        as_leader: bool | None = None,
    ) -> JoinGroupResponse:
        """Return the answer that admits a member to this generation; the leader's lists all members."""
        if as_leader is None:
            as_leader = member_id == self.leader_id
        return JoinGroupResponse(
            generation_id=self.generation_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=(self.leader_id if leader_id is None else leader_id) or "",
            skip_assignment=skip_assignment,
            member_id=member_id,
            members=self._members_for_leader() if as_leader else [],
        )

    def _members_for_leader(self) -> list[JoinGroupResponseMember]:
        return [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata_for(self.protocol_name),
            )
            for member in self.members.values()
        ]


def failed_join(member_id: str, error: ErrorCode) -> JoinGroupResponse:
    """Return a JoinGroup response with an error."""
    return JoinGroupResponse(
        error_code=error, generation_id=NO_GENERATION, member_id=member_id, protocol_name=None, leader=""
    )


def subscribed_topics(metadata: bytes) -> set[str]:
    """Return the topics in a ConsumerProtocolSubscription; newer versions are read as the newest known (Kafka's rule).

    Raises DecodeError.
    """
    if len(metadata) < 2:
        raise DecodeError("no version in a subscription")
    version = int.from_bytes(metadata[:2], "big", signed=True)
    if version < SUBSCRIPTION_VERSIONS[0]:
        raise DecodeError(f"subscription version {version}")
    subscription = decode(ConsumerProtocolSubscription, metadata[2:], min(version, SUBSCRIPTION_VERSIONS[1]))
    return set(subscription.topics)
