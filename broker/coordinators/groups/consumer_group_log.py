"""Groups of the consumer protocol as records of `__consumer_offsets`, keys 3 to 8, in Kafka's own formats.

A write is the difference between two values of a group, in the order that Kafka's replay accepts; a replay restores the
value. Source: Kafka `CoordinatorRecordHelpers`, `GroupMetadataManager.replay`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from ....protocol.codec import decode
from ....protocol.errors import BrokerError
from ....protocol.messages.consumer_group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from ....protocol.messages.consumer_group_records import TopicMetadata as TopicMetadataRecord
from ....protocol.messages.consumer_group_records import TopicPartition as TargetPartitions
from ....protocol.messages.consumer_group_records import TopicPartitions as CurrentPartitions
from ....protocol.schema import Message
from ..internal_log.coordinator_log import KeyValue
from .assignment import NOTHING, Assignment, from_lists, to_lists
from .classic_member import MemberProtocol
from .consumer_group import ConsumerGroup, TopicMetadata
from .consumer_member import ClassicSide, ConsumerMember, MemberState
from .group_log import GroupLog, error_for_clients, version_of, versioned, versioned_bytes
from .group_map import GroupMap

VALUE_VERSION: Final = 0
GROUP, TOPICS, MEMBER, TARGET_EPOCH, TARGET, CURRENT = CONSUMER_GROUP_KEYS = range(3, 9)
"""Versions of the keys, which identify the type of a record."""


class ConsumerGroupLog:
    """A writer of groups of the consumer protocol."""

    def __init__(self, log: GroupLog) -> None:
        self._log = log

    def store(self, before: ConsumerGroup, after: ConsumerGroup, *, preceding: Sequence[KeyValue] = ()) -> None:
        """Write the difference of `before` and `after` as one batch. Raises BrokerError with the client's error."""
        self.write(after.group_id, [*preceding, *difference(before, after)])

    def write(self, group_id: str, records: Sequence[KeyValue]) -> None:
        """Write records of a group. Raises BrokerError with the client's error."""
        if not records:
            return
        try:
            self._log.write(group_id, records)
        except BrokerError as error:
            raise BrokerError(error_for_clients(error), error.message) from error


# --- writing


def difference(before: ConsumerGroup, after: ConsumerGroup) -> list[KeyValue]:
    """Return the records that change `before` into `after`."""
    group_id = after.group_id
    gone = [member_id for member_id in before.members if member_id not in after.members]
    changed = [
        (before.members.get(member_id), member)
        for member_id, member in after.members.items()
        if before.members.get(member_id) is not member
    ]
    records = [record for member_id in gone for record in _member_tombstones(group_id, member_id)]
    records += [
        _member_record(group_id, new) for old, new in changed if old is None or _subscription(old) != _subscription(new)
    ]
    if before.topics != after.topics:
        records.append(_topics_record(after))
    if before.epoch != after.epoch:
        key = ConsumerGroupMetadataKey(group_id=group_id)
        records.append(versioned(key, GROUP, ConsumerGroupMetadataValue(epoch=after.epoch), VALUE_VERSION))
    records += [
        _target_record(group_id, member_id, target)
        for member_id, target in after.target.items()
        if before.target.get(member_id) != target
    ]
    if before.assignment_epoch != after.assignment_epoch:
        epoch = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=after.assignment_epoch)
        target_key = ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id)
        records.append(versioned(target_key, TARGET_EPOCH, epoch, VALUE_VERSION))
    records += [
        _current_record(group_id, new) for old, new in changed if old is None or _position(old) != _position(new)
    ]
    return records


def tombstones(group: ConsumerGroup) -> list[KeyValue]:
    """Return the tombstones that delete a group from the log."""
    group_id, members = group.group_id, group.members
    return [
        *(_tombstone(ConsumerGroupCurrentMemberAssignmentKey, CURRENT, group_id, member_id) for member_id in members),
        *(_tombstone(ConsumerGroupTargetAssignmentMemberKey, TARGET, group_id, member_id) for member_id in members),
        _tombstone(ConsumerGroupTargetAssignmentMetadataKey, TARGET_EPOCH, group_id),
        *(_tombstone(ConsumerGroupMemberMetadataKey, MEMBER, group_id, member_id) for member_id in members),
        _tombstone(ConsumerGroupPartitionMetadataKey, TOPICS, group_id),
        _tombstone(ConsumerGroupMetadataKey, GROUP, group_id),
    ]


def _member_tombstones(group_id: str, member_id: str) -> list[KeyValue]:
    return [
        _tombstone(ConsumerGroupCurrentMemberAssignmentKey, CURRENT, group_id, member_id),
        _tombstone(ConsumerGroupTargetAssignmentMemberKey, TARGET, group_id, member_id),
        _tombstone(ConsumerGroupMemberMetadataKey, MEMBER, group_id, member_id),
    ]


def _tombstone(key_type: Callable[..., Message], version: int, group_id: str, member_id: str | None = None) -> KeyValue:
    key = key_type(group_id=group_id) if member_id is None else key_type(group_id=group_id, member_id=member_id)
    return KeyValue(versioned_bytes(key, version), None)


def _subscription(member: ConsumerMember) -> ConsumerMember:
    """Return the member without the fields that its other record holds."""
    return replace(member, epoch=0, previous_epoch=0, state=MemberState.STABLE, assigned=NOTHING, revoking=NOTHING)


def _position(member: ConsumerMember) -> tuple[object, ...]:
    return member.epoch, member.previous_epoch, member.state, member.assigned, member.revoking


def _member_record(group_id: str, member: ConsumerMember) -> KeyValue:
    classic = None
    if member.classic is not None:
        classic = ClassicMemberMetadata(
            session_timeout_ms=member.classic.session_timeout_ms,
            supported_protocols=[
                ClassicProtocol(name=protocol.name, metadata=protocol.metadata) for protocol in member.classic.protocols
            ],
        )
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topics),
        subscribed_topic_regex=member.subscribed_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
        classic_member_metadata=classic,
    )
    key = ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id)
    return versioned(key, MEMBER, value, VALUE_VERSION)


def _topics_record(group: ConsumerGroup) -> KeyValue:
    value = ConsumerGroupPartitionMetadataValue(
        topics=[
            TopicMetadataRecord(topic_id=topic.topic_id, topic_name=topic.name, num_partitions=topic.partition_count)
            for topic in group.topics.values()
        ]
    )
    return versioned(ConsumerGroupPartitionMetadataKey(group_id=group.group_id), TOPICS, value, VALUE_VERSION)


def _target_record(group_id: str, member_id: str, target: Assignment) -> KeyValue:
    key = ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    value = ConsumerGroupTargetAssignmentMemberValue(topic_partitions=to_lists(target, TargetPartitions))
    return versioned(key, TARGET, value, VALUE_VERSION)


def _current_record(group_id: str, member: ConsumerMember) -> KeyValue:
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        assigned_partitions=to_lists(member.assigned, CurrentPartitions),
        partitions_pending_revocation=to_lists(member.revoking, CurrentPartitions),
    )
    return versioned(key, CURRENT, value, VALUE_VERSION)


# --- replaying


def replay_record(groups: GroupMap, key: bytes, value: bytes | None) -> str:
    """Apply one record of a group; return the group's id. Raises DecodeError.

    Compaction may leave a group's records in any order, so each can be the first one.
    """
    kind = version_of(key)
    key_type, take = _REPLAY[kind]
    parsed = decode(key_type, memoryview(key)[2:], kind)
    group_id: str = parsed.group_id
    group = groups.consumer(group_id)
    if kind == GROUP and value is None:
        if group is not None:
            groups.remove(group_id)
    elif value is not None or group is not None:
        groups.put(take(group or ConsumerGroup(group_id), parsed, value))
    return group_id


def _replay_epoch(group: ConsumerGroup, key: ConsumerGroupMetadataKey, value: bytes | None) -> ConsumerGroup:
    parsed = _parsed(ConsumerGroupMetadataValue, value)
    return group if parsed is None else replace(group, epoch=parsed.epoch)


def _replay_topics(group: ConsumerGroup, key: ConsumerGroupPartitionMetadataKey, value: bytes | None) -> ConsumerGroup:
    parsed = _parsed(ConsumerGroupPartitionMetadataValue, value)
    topics = () if parsed is None else parsed.topics
    return replace(
        group,
        topics={
            topic.topic_name: TopicMetadata(topic.topic_id, topic.topic_name, topic.num_partitions) for topic in topics
        },
    )


def _replay_member(group: ConsumerGroup, key: ConsumerGroupMemberMetadataKey, value: bytes | None) -> ConsumerGroup:
    parsed = _parsed(ConsumerGroupMemberMetadataValue, value)
    if parsed is None:
        return group.without_members([key.member_id])
    return group.with_member(
        replace(
            group.members.get(key.member_id) or ConsumerMember(key.member_id),
            instance_id=parsed.instance_id,
            rack_id=parsed.rack_id,
            rebalance_timeout_ms=parsed.rebalance_timeout_ms,
            client_id=parsed.client_id,
            client_host=parsed.client_host,
            subscribed_topics=frozenset(parsed.subscribed_topic_names),
            subscribed_regex=parsed.subscribed_topic_regex,
            assignor=parsed.server_assignor,
            classic=_classic_side(parsed.classic_member_metadata),
        )
    )


def _classic_side(metadata: ClassicMemberMetadata | None) -> ClassicSide | None:
    if metadata is None:
        return None
    protocols = (MemberProtocol(protocol.name, bytes(protocol.metadata)) for protocol in metadata.supported_protocols)
    return ClassicSide(metadata.session_timeout_ms, tuple(protocols))


def _replay_target_epoch(
    group: ConsumerGroup, key: ConsumerGroupTargetAssignmentMetadataKey, value: bytes | None
) -> ConsumerGroup:
    parsed = _parsed(ConsumerGroupTargetAssignmentMetadataValue, value)
    return group if parsed is None else replace(group, assignment_epoch=parsed.assignment_epoch)


def _replay_target(
    group: ConsumerGroup, key: ConsumerGroupTargetAssignmentMemberKey, value: bytes | None
) -> ConsumerGroup:
    parsed = _parsed(ConsumerGroupTargetAssignmentMemberValue, value)
    target = {member_id: partitions for member_id, partitions in group.target.items() if member_id != key.member_id}
    if parsed is not None:
        target[key.member_id] = from_lists(parsed.topic_partitions)
    return replace(group, target=target)


def _replay_current(
    group: ConsumerGroup, key: ConsumerGroupCurrentMemberAssignmentKey, value: bytes | None
) -> ConsumerGroup:
    parsed = _parsed(ConsumerGroupCurrentMemberAssignmentValue, value)
    member = group.members.get(key.member_id)
    if parsed is None:
        # The member's own tombstone follows this one.
        return group if member is None else group.with_member(replace(member, assigned=NOTHING, revoking=NOTHING))
    known_states = {state.value for state in MemberState}
    return group.with_member(
        replace(
            member or ConsumerMember(key.member_id),
            epoch=parsed.member_epoch,
            previous_epoch=parsed.previous_member_epoch,
            state=MemberState(parsed.state) if parsed.state in known_states else MemberState.UNKNOWN,
            assigned=from_lists(parsed.assigned_partitions),
            revoking=from_lists(parsed.partitions_pending_revocation),
        )
    )


_Value = TypeVar("_Value", bound=Message)


def _parsed(value_type: type[_Value], value: bytes | None) -> _Value | None:
    return None if value is None else decode(value_type, memoryview(value)[2:], version_of(value))


_REPLAY: Final[Mapping[int, tuple[Any, Callable[[ConsumerGroup, Any, bytes | None], ConsumerGroup]]]] = {
    GROUP: (ConsumerGroupMetadataKey, _replay_epoch),
    TOPICS: (ConsumerGroupPartitionMetadataKey, _replay_topics),
    MEMBER: (ConsumerGroupMemberMetadataKey, _replay_member),
    TARGET_EPOCH: (ConsumerGroupTargetAssignmentMetadataKey, _replay_target_epoch),
    TARGET: (ConsumerGroupTargetAssignmentMemberKey, _replay_target),
    CURRENT: (ConsumerGroupCurrentMemberAssignmentKey, _replay_current),
}
