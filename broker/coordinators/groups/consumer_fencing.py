"""Checks of requests on groups of the consumer protocol: every rule that refuses a request.

Source: Kafka `GroupMetadataManager.throwIf...`, `ConsumerGroup.validateOffsetCommit` and `validateOffsetFetch`, with
their messages.
"""

from __future__ import annotations

from collections.abc import Collection

from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from .assignment import Assignment, is_within
from .classic_protocol import Committer
from .consumer_group import ConsumerGroup
from .consumer_member import LEAVE_EPOCH, LEAVE_FOR_A_WHILE_EPOCH, ConsumerMember
from .topic_patterns import check_pattern


def check_heartbeat(
    request: ConsumerGroupHeartbeatRequest, assignors: Collection[str], *, has_own_member_id: bool
) -> None:
    """Check that the fields of a heartbeat are consistent; with `has_own_member_id` (v1+) it must have a member id.

    Raises BrokerError INVALID_REQUEST, INVALID_REGULAR_EXPRESSION, UNSUPPORTED_ASSIGNOR.
    """
    _refuse_empty(request.group_id, "GroupId")
    _refuse_empty(request.instance_id, "InstanceId")
    _refuse_empty(request.rack_id, "RackId")
    if request.member_epoch == 0:
        if has_own_member_id:
            _refuse_empty(request.member_id, "MemberId")
        _check_first_heartbeat(request, may_read_nothing=has_own_member_id)
    elif request.member_epoch < LEAVE_FOR_A_WHILE_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    else:
        _refuse_empty(request.member_id, "MemberId")
        if request.member_epoch == LEAVE_FOR_A_WHILE_EPOCH and request.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    if request.subscribed_topic_regex:
        check_pattern(request.subscribed_topic_regex)
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise BrokerError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def _check_first_heartbeat(request: ConsumerGroupHeartbeatRequest, *, may_read_nothing: bool) -> None:
    if request.rebalance_timeout_ms == -1:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if not may_read_nothing and not request.subscribed_topic_names:
        raise _invalid("SubscribedTopicNames must be set in first request.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise _invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")


def _refuse_empty(value: str | None, field: str) -> None:
    if value is not None and not value.strip():
        raise _invalid(f"{field} can't be empty.")


def _invalid(message: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, message)


def check_room(group: ConsumerGroup, member_id: str, max_size: int) -> None:
    """Check that the group may have one more member. Raises BrokerError GROUP_MAX_SIZE_REACHED."""
    if len(group.members) >= max_size and member_id not in group.members:
        raise BrokerError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {max_size} members.",
        )


def check_epoch(member: ConsumerMember, epoch: int, owned: Assignment | None) -> None:
    """Check that a heartbeat has the member's epoch, or the previous one if its answer may have been lost.

    Raises BrokerError FENCED_MEMBER_EPOCH.
    """
    if epoch == member.epoch:
        return
    is_repeated = epoch == member.previous_epoch and owned is not None and is_within(owned, member.assigned)
    if epoch > member.epoch or not is_repeated:
        size = "greater" if epoch > member.epoch else "smaller"
        raise BrokerError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The consumer group member has a {size} member epoch ({epoch}) than the one known by the group "
            f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
        )


def check_released(member: ConsumerMember, member_id: str) -> None:
    """Check that a static member has left, so that `member_id` may replace it. Raises UNRELEASED_INSTANCE_ID."""
    if member.epoch != LEAVE_FOR_A_WHILE_EPOCH:
        raise BrokerError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {member.instance_id} cannot join the group because the "
            f"instance id is owned by {member.member_id} member.",
        )


def static_member(group: ConsumerGroup, instance_id: str, member_id: str) -> ConsumerMember:
    """Return the member of an instance id, which must have this member id.

    Raises BrokerError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
    """
    member = group.static_member(instance_id)
    if member is None:
        raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise BrokerError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
        )
    return member


def find_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    """Return the member that sent a request. Raises BrokerError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    if instance_id is None:
        return group.member(member_id)
    return static_member(group, instance_id, member_id)


def check_commit(group: ConsumerGroup, committer: Committer, *, is_transactional: bool) -> None:
    """Check that offsets may be committed: by any client if the group is empty, else by members in their epoch.

    Raises BrokerError UNKNOWN_MEMBER_ID, UNSUPPORTED_VERSION, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION.
    """
    if committer.generation_id < 0 and not group.members:
        return
    member = group.member(committer.member_id)
    if not is_transactional and member.classic is None and not committer.knows_member_epochs:
        raise BrokerError(
            ErrorCode.UNSUPPORTED_VERSION,
            "OffsetCommit version 9 or above must be used by members using the modern group protocol",
        )
    _check_offsets_epoch(member, committer.generation_id, is_classic=is_transactional or member.classic is not None)


def check_fetch(group: ConsumerGroup, member_id: str | None, member_epoch: int) -> None:
    """Check that committed offsets may be fetched: by clients that claim no membership, or members in their epoch.

    Raises BrokerError UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION.
    """
    if member_id is None and member_epoch < 0:
        return
    member = group.member(member_id or "")
    _check_offsets_epoch(member, member_epoch, is_classic=member.classic is not None)


def _check_offsets_epoch(member: ConsumerMember, epoch: int, *, is_classic: bool) -> None:
    if epoch == member.epoch:
        return
    if is_classic:
        raise BrokerError(
            ErrorCode.ILLEGAL_GENERATION,
            f"The received generation id {epoch} does not match the expected member epoch {member.epoch}.",
        )
    raise BrokerError(
        ErrorCode.STALE_MEMBER_EPOCH,
        f"The received member epoch {epoch} does not match the expected member epoch {member.epoch}.",
    )


def is_leaving(member_epoch: int) -> bool:
    """Return whether a heartbeat with this epoch is the member's last one."""
    return member_epoch in (LEAVE_EPOCH, LEAVE_FOR_A_WHILE_EPOCH)
