"""ConsumerGroupHeartbeat (KIP-848): the one request with which a member joins, stays, changes or leaves.

A member's first heartbeat has epoch 0 and all fields; later ones contain only changes. The answer holds the member's
epoch and, if the assignment has changed or the heartbeat had all fields, the assignment. The member revokes partitions
that are not in it and confirms that with its next heartbeat; only then do other members get them.

Source: Kafka `GroupMetadataManager.consumerGroupHeartbeat`, `consumerGroupLeave`.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from dataclasses import replace
from typing import NamedTuple
from uuid import uuid4

from ....protocol.messages.consumer_group_heartbeat import Assignment as AssignmentMessage
from ....protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitionsResponse,
)
from ...config import BrokerConfig
from .assignment import Assignment, from_lists, to_lists
from .consumer_fencing import check_epoch, check_heartbeat, check_released, check_room, find_member, is_leaving
from .consumer_group import ConsumerGroup
from .consumer_groups import ConsumerGroups
from .consumer_member import LEAVE_FOR_A_WHILE_EPOCH, ConsumerMember


class HeartbeatingClient(NamedTuple):
    """A client that sends a heartbeat."""

    client_id: str
    client_host: str
    makes_member_id: bool = False
    """Whether the client generates its own member id (ConsumerGroupHeartbeat v1+, KIP-1082)."""


class ConsumerProtocol:
    """A handler of ConsumerGroupHeartbeat for all groups."""

    def __init__(self, config: BrokerConfig, groups: ConsumerGroups) -> None:
        self._config = config
        self._groups = groups

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, client: HeartbeatingClient
    ) -> ConsumerGroupHeartbeatResponse:
        """Serve one heartbeat. Raises BrokerError for every refusal, with Kafka's message."""
        check_heartbeat(request, self._groups.assignors, has_own_member_id=client.makes_member_id)
        if is_leaving(request.member_epoch):
            return self._leave(request)
        is_joining = request.member_epoch == 0
        owned = None if request.topic_partitions is None else from_lists(request.topic_partitions)
        group = (self._groups.for_joining if is_joining else self._groups.existing)(request.group_id)
        check_room(group, request.member_id, self._config.group_consumer_max_size)
        if is_joining:
            group, before = _enter(group, request)
        else:
            before = find_member(group, request.member_id, request.instance_id)
        check_epoch(before, request.member_epoch, owned)
        member = self._groups.advance(group, _told(before, request, client), owned)
        self._groups.extend_session(group.group_id, member.member_id)
        tells_everything = is_joining or (
            request.rebalance_timeout_ms != -1 and request.subscribed_topic_names is not None and owned is not None
        )
        return ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._config.group_consumer_heartbeat_interval_ms,
            assignment=_message(member.assigned) if tells_everything or member.assigned != before.assigned else None,
        )

    def _leave(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        group = self._groups.existing(request.group_id)
        member = find_member(group, request.member_id, request.instance_id)
        if request.member_epoch == LEAVE_FOR_A_WHILE_EPOCH:
            self._groups.leave_for_a_while(group, member)
        else:
            self._groups.remove_members(group, [member.member_id])
        return ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)


def _enter(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> tuple[ConsumerGroup, ConsumerMember]:
    """Return the joining member, new or present, and the group in which it replaces its static predecessor, if any."""
    member_id = request.member_id or new_member_id()
    predecessor = None if request.instance_id is None else group.static_member(request.instance_id)
    if predecessor is not None:
        check_released(predecessor, member_id)
        group = group.with_replaced(predecessor, member_id)
    return group, group.members.get(member_id) or ConsumerMember(member_id)


def _told(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, client: HeartbeatingClient) -> ConsumerMember:
    """Return the member with the changed fields of the request; null or -1 means unchanged."""
    names, regex, timeout_ms = (
        request.subscribed_topic_names,
        request.subscribed_topic_regex,
        request.rebalance_timeout_ms,
    )
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        assignor=member.assignor if request.server_assignor is None else request.server_assignor,
        subscribed_topics=member.subscribed_topics if names is None else frozenset(names),
        subscribed_regex=member.subscribed_regex if regex is None else regex,
        client_id=client.client_id,
        client_host=client.client_host,
        classic=None,
    )


def new_member_id() -> str:
    """Return a new unique id in the form of Kafka's `Uuid`, which never begins with a dash."""
    while True:
        member_id = urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
        if not member_id.startswith("-"):
            return member_id


def _message(assignment: Assignment) -> AssignmentMessage:
    return AssignmentMessage(topic_partitions=to_lists(assignment, TopicPartitionsResponse))
