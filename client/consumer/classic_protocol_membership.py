"""Membership in a consumer group by the classic protocol: join, sync, heartbeat, and join again on a rebalance.

When the coordinator starts a rebalance, the member keeps reading in its generation until the user's next poll. Then
it revokes its partitions (all of them with an eager assignor) and joins again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

import trio

from ...protocol.apis import ApiKey
from ...protocol.codec import decode, encode
from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages import consumer_protocol_assignment, consumer_protocol_subscription
from ...protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from ...protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ...protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ...protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ...protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ...protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from ...protocol.schema import Message
from ...protocol.topic_partition import AnyTopicPartition
from ..config import ConsumerConfig
from ..wire.cluster import Cluster
from ..wire.connection import Connection
from ..wire.group_offsets import Membership
from ..wire.pending_answer import Response
from .assignors import Assignment, Assignor, MemberWish, assignors_named
from .group_membership import AssignmentListener, GroupMembership
from .poll_boundary import PollBoundary
from .subscription import Subscription, by_topic

PROTOCOL_TYPE = "consumer"
SUBSCRIPTION_VERSION = 1
ASSIGNMENT_VERSION = 0
VERSION_SIZE = 2
NO_GENERATION = -1
FIRST_VERSION_THAT_NAMES_MEMBERS_FIRST = 4
"""The first version of JoinGroup that answers a member without an id with MEMBER_ID_REQUIRED and an id (KIP-394)."""
JOIN_MARGIN_MS = 5_000
"""The time by which the timeout of JoinGroup exceeds the rebalance timeout (Kafka's AbstractCoordinator)."""


class ClassicProtocolMembership(GroupMembership):
    """A member by the classic protocol.

    A rebalance is a JoinGroup and a SyncGroup; the leader assigns the partitions.
    """

    START_ANEW_CODES: ClassVar = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})

    def __init__(
        self,
        cluster: Cluster,
        subscription: Subscription,
        config: ConsumerConfig,
        boundary: PollBoundary,
        listener: AssignmentListener,
    ) -> None:
        super().__init__(cluster, subscription, config, boundary, listener)
        self._assignors = assignors_named(config.partition_assignment_strategy)
        self._is_cooperative = all(assignor.is_cooperative for assignor in self._assignors)
        self._generation_id = NO_GENERATION
        self._join_count = 0
        self._is_joining = False
        self._is_giving_back = False
        self._led_counts: dict[str, int] | None = None

    @property
    def membership(self) -> Membership:
        """The member and generation with which offsets are committed now."""
        return Membership(self._generation_id, self._member_id, self._config.group_instance_id)

    def rejoin(self) -> None:
        """Start a rebalance of the group."""
        self._rebalance_wanted.set()

    def topics_changed(self) -> bool:
        """Return whether this member was the leader, and topics have other partition counts now than in its
        assignment.
        """
        return self._led_counts is not None and self._led_counts != self._partition_counts(self._led_counts)

    def _forget_place(self, code: ErrorCode) -> None:
        self._generation_id = NO_GENERATION
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""

    async def _say_goodbye(self) -> None:
        if not self._member_id or self._config.group_instance_id is not None:
            return
        connection = await self._coordinator()
        version = connection.versions.version(ApiKey.LEAVE_GROUP)
        request = LeaveGroupRequest(group_id=self._group_id)
        if version >= 3:
            request.members = [MemberIdentity(member_id=self._member_id, reason="the consumer is being closed")]
        else:
            request.member_id = self._member_id
        answer = await connection.request(request, LeaveGroupResponse, version=version)
        _raise_for(answer.error_code, "LeaveGroup")
        for member in answer.members:
            _raise_for(member.error_code, "LeaveGroup")

    # --- join and sync ---

    async def _rebalance(self) -> None:
        try:
            await self._prepare()
            await self._join()
        except BrokerError as error:
            if error.code is not ErrorCode.REBALANCE_IN_PROGRESS:
                raise
            self._rebalance_wanted.set()

    async def _prepare(self) -> None:
        """Wait until the user polls; with an eager assignor, revoke all partitions then."""
        if not self._is_cooperative:
            await self._give_back_all()
        elif self._subscription.positions and not self._is_giving_back:
            await self._boundary.hand_over(trio.lowlevel.checkpoint)

    async def _join(self) -> None:
        """Join the group, sync and take over the assignment: one rebalance."""
        # A request for a rebalance from here on is a request for the next rebalance.
        self._rebalance_wanted = trio.Event()
        self._is_giving_back = False
        self._join_count += 1
        self._is_joining = True
        try:
            answer = await self._ask_join()
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self._member_id = answer.member_id
                answer = await self._ask_join()
            _raise_for(answer.error_code, "JoinGroup")
            self._member_id, self._generation_id = answer.member_id, answer.generation_id
        finally:
            self._is_joining = False
        self._led_counts = None
        assignments: list[SyncGroupRequestAssignment] = []
        if answer.leader == answer.member_id:
            assignments = await self._divide(answer)
        assigned = await self._sync(answer.protocol_name or "", assignments)
        has_lost_some = await self._take_over(assigned)
        if has_lost_some and self._is_cooperative:
            # The revoked partitions are assigned in a second rebalance (KIP-429), which needs no further poll of the
            # user.
            self._is_giving_back = True
            self._rebalance_wanted.set()

    async def _ask_join(self) -> JoinGroupResponse:
        subscription = ConsumerProtocolSubscription(
            topics=sorted(self._subscription.topics),
            owned_partitions=[
                consumer_protocol_subscription.TopicPartition(topic=topic, partitions=partitions)
                for topic, partitions in by_topic(self._subscription.positions).items()
            ],
        )
        metadata = _versioned(SUBSCRIPTION_VERSION, encode(subscription, SUBSCRIPTION_VERSION))
        connection = await self._coordinator()
        version = connection.versions.version(ApiKey.JOIN_GROUP)
        request = JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=self._config.session_timeout_ms,
            rebalance_timeout_ms=self._config.max_poll_interval_ms,
            member_id=self._member_id,
            group_instance_id=self._config.group_instance_id if version >= 5 else None,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=a.name, metadata=metadata) for a in self._assignors],
        )
        timeout_ms = max(self._config.max_poll_interval_ms, self._config.session_timeout_ms) + JOIN_MARGIN_MS
        if not self._member_id and version >= FIRST_VERSION_THAT_NAMES_MEMBERS_FIRST:
            # A member cannot leave without its id, and the coordinator answers with the id at once.
            with trio.CancelScope(shield=True):
                return await connection.request(request, JoinGroupResponse, version=version, timeout_ms=timeout_ms)
        return await _ask_group(connection, request, JoinGroupResponse, version, timeout_ms)

    async def _divide(self, answer: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        """Run the group's assignor as its leader, on the subscriptions of all members."""
        assignor: Assignor = next(a for a in self._assignors if a.name == answer.protocol_name)
        members = {member.member_id: _read_wish(member.metadata) for member in answer.members}
        topics = {topic for wish in members.values() for topic in wish.topics}
        await self._cluster.refresh(topics, allow_auto_create=self._config.allow_auto_create_topics)
        counts = self._partition_counts(topics)
        self._led_counts = {topic: counts.get(topic, 0) for topic in topics}
        assignment: Assignment = assignor.assign(counts, members)
        return [
            SyncGroupRequestAssignment(
                member_id=member,
                assignment=_versioned(
                    ASSIGNMENT_VERSION,
                    encode(
                        ConsumerProtocolAssignment(
                            assigned_partitions=[
                                consumer_protocol_assignment.TopicPartition(topic=topic, partitions=partitions)
                                for topic, partitions in by_topic(places).items()
                            ]
                        ),
                        ASSIGNMENT_VERSION,
                    ),
                ),
            )
            for member, places in assignment.items()
        ]

    def _partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        known = self._cluster.topics
        return {topic: len(known[topic].partitions) for topic in topics if topic in known}

    async def _sync(
        self, protocol_name: str, assignments: list[SyncGroupRequestAssignment]
    ) -> Sequence[AnyTopicPartition]:
        connection = await self._coordinator()
        version = connection.versions.version(ApiKey.SYNC_GROUP)
        request = SyncGroupRequest(
            group_id=self._group_id,
            generation_id=self._generation_id,
            member_id=self._member_id,
            group_instance_id=self._config.group_instance_id if version >= 3 else None,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=protocol_name,
            assignments=assignments,
        )
        timeout_ms = self._config.max_poll_interval_ms + JOIN_MARGIN_MS
        answer = await _ask_group(connection, request, SyncGroupResponse, version, timeout_ms)
        _raise_for(answer.error_code, "SyncGroup")
        if not answer.assignment:
            return []
        assignment = decode(ConsumerProtocolAssignment, answer.assignment[VERSION_SIZE:], ASSIGNMENT_VERSION)
        return [(item.topic, partition) for item in assignment.assigned_partitions for partition in item.partitions]

    # --- heartbeats ---

    @property
    def _beat_interval_s(self) -> float:
        return self._config.heartbeat_interval_ms / 1000

    async def _beat(self) -> None:
        if self._generation_id == NO_GENERATION or self._is_joining:
            # JoinGroup waits as long as the group needs, and the coordinator expects no heartbeats meanwhile.
            return
        join_count = self._join_count
        connection = await self._coordinator()
        version = connection.versions.version(ApiKey.HEARTBEAT)
        request = HeartbeatRequest(
            group_id=self._group_id,
            generation_id=self._generation_id,
            member_id=self._member_id,
            group_instance_id=self._config.group_instance_id if version >= 3 else None,
        )
        answer = await connection.request(
            request, HeartbeatResponse, version=version, timeout_ms=self._config.session_timeout_ms
        )
        if join_count != self._join_count:
            # The answer is about an earlier generation, so it is ignored.
            return
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._rebalance_wanted.set()
            return
        _raise_for(answer.error_code, "Heartbeat")


async def _ask_group(
    connection: Connection, request: Message, answer_class: type[Response], version: int, timeout_ms: int
) -> Response:
    """Send a request that the coordinator answers when all members of the group have sent theirs.

    If the call is cancelled, the connection is closed: a broker answers in order, so that a LeaveGroup on the same
    connection would wait for the other members, who wait for this one. Raises ConnectionLostError.
    """
    try:
        return await connection.request(request, answer_class, version=version, timeout_ms=timeout_ms)
    except trio.Cancelled:
        connection.close(f"the member has given up its {type(request).__name__}")
        raise


def _raise_for(code: int, what: str) -> None:
    if code:
        raise BrokerError(ErrorCode(code), what)


def _versioned(version: int, body: bytes) -> bytes:
    return version.to_bytes(VERSION_SIZE, "big") + body


def _read_wish(metadata: bytes) -> MemberWish:
    """Decode a member's subscription; versions newer than ours begin with the same fields."""
    version = min(int.from_bytes(metadata[:VERSION_SIZE], "big"), SUBSCRIPTION_VERSION)
    subscription = decode(ConsumerProtocolSubscription, metadata[VERSION_SIZE:], version)
    owned = [(item.topic, partition) for item in subscription.owned_partitions for partition in item.partitions]
    return MemberWish(subscription.topics, owned)
