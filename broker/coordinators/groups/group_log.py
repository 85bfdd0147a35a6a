"""The group coordinator's state as records of `__consumer_offsets`, in Kafka's own formats.

Every key begins with an int16 that is its type: 0 and 1 a committed offset, 2 a classic group with its members,
3 to 8 the parts of a group of the consumer protocol (`consumer_group_log.py`). Every value begins with its own version.
Source: Kafka `GroupMetadataManager`; the versions written are those of Kafka 3.9.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

from ....protocol.codec import decode, encode
from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.messages.group_metadata_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ....protocol.schema import Message
from ....protocol.topic_partition import TopicPartition
from ...replicas.partition import REPLICATED
from ...server.pending import Pending, completed
from ..internal_log.coordinator_log import CoordinatorLog, KeyValue, TransactionalProducer
from .classic_group import ClassicGroup, GroupState
from .classic_member import ClassicMember, MemberProtocol
from .committed_offsets import CommittedOffset

OFFSET_KEYS = (0, 1)
GROUP_KEY = 2
OFFSET_VALUE, OFFSET_VALUE_WITH_EXPIRY = 3, 1
GROUP_VALUE = 3
NOT_SET = -1
TOMBSTONES_PER_BATCH = 1000
"""A batch must stay below message.max.bytes however many offsets a group has."""

_ERRORS_FOR_CLIENTS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
"""The client's error for a failed append (Kafka `GroupMetadataManager.storeOffsets`)."""
_ERRORS_OF_GENERATIONS = _ERRORS_FOR_CLIENTS | {ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS}
"""The members' error for a failed append of a generation (Kafka `GroupMetadataManager.storeGroup`)."""


class GroupLog:
    """A writer of classic groups and offsets; `parse_offset` and `parse_group` below read them."""

    def __init__(self, log: CoordinatorLog, *, timeout_s: float = math.inf) -> None:
        """Write to ``log``; ``timeout_s`` limits the replication of a generation (`offsets.commit.timeout.ms`)."""
        self.log = log
        self._timeout_s = timeout_s

    def store_group(self, group: ClassicGroup) -> ErrorCode:
        """Write a group with its members; return the members' error if that failed, else NONE."""
        try:
            self.write(group.group_id, [classic_group_record(group)])
        except BrokerError as error:
            return error_for_clients(error)
        return ErrorCode.NONE

    def store_generation(self, group: ClassicGroup) -> Pending[ErrorCode]:
        """Write a group; return a pending NONE, completed when the record is replicated, or the members' error."""
        index = self.log.partition_of(group.group_id)
        try:
            offset = self.log.append(index, [classic_group_record(group)])
            replicated = self.log.replicated(index, offset, self._timeout_s)
        except BrokerError as error:
            return completed(error_for_clients(error))
        return replicated.map(lambda code: _ERRORS_OF_GENERATIONS.get(code, code))

    def store_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        producer: TransactionalProducer | None = None,
    ) -> int:
        """Write committed offsets; return the first record's offset. Raises BrokerError with the client's error."""
        records = [offset_record(group_id, partition, offset) for partition, offset in offsets.items()]
        try:
            return self.write(group_id, records, producer)
        except BrokerError as error:
            raise BrokerError(error_for_clients(error), error.message) from error

    def is_replicated(self, group_id: str, offset: int) -> bool:
        """Return whether all in-sync replicas have the record."""
        return self.log.is_replicated(self.log.partition_of(group_id), offset)

    def when_replicated(self, group_id: str, offset: int, then: Callable[[], None]) -> None:
        """Call ``then``, maybe at once, when all in-sync replicas have the record; never if the record is lost."""

        replicated = self.log.replicated(self.log.partition_of(group_id), offset)

        def proceed() -> None:
            if replicated.result() in REPLICATED:
                then()

        replicated.when_complete(proceed)

    def forget(self, group_id: str, partitions: Iterable[TopicPartition], *, whole_group: bool = False) -> None:
        """Write tombstones for offsets and, with `whole_group`, for the group itself."""
        records = [KeyValue(offset_key(group_id, partition), None) for partition in partitions]
        if whole_group:
            records.append(classic_group_tombstone(group_id))
        for first in range(0, len(records), TOMBSTONES_PER_BATCH):
            self.write(group_id, records[first : first + TOMBSTONES_PER_BATCH])

    def write(self, group_id: str, records: Sequence[KeyValue], producer: TransactionalProducer | None = None) -> int:
        """Append records to the group's partition, some megabytes at most. Raises BrokerError."""
        return self.log.append(self.log.partition_of(group_id), records, producer=producer)


def error_for_clients(error: BrokerError) -> ErrorCode:
    """Return the error that a group's client understands."""
    return _ERRORS_FOR_CLIENTS.get(error.code, error.code)


def versioned_bytes(message: Message, version: int) -> bytes:
    """Return an encoded key or value after its version."""
    return version.to_bytes(2, "big") + encode(message, version)


def versioned(key: Message, key_version: int, value: Message, value_version: int) -> KeyValue:
    """Return a record of a versioned key and a versioned value."""
    return KeyValue(versioned_bytes(key, key_version), versioned_bytes(value, value_version))


def version_of(data: bytes) -> int:
    """Return the version at the start of a key or value."""
    return int.from_bytes(data[:2], "big", signed=True)


# --- committed offsets


@lru_cache(maxsize=10_000)
def offset_key(group_id: str, partition: TopicPartition) -> bytes:
    """Return the key of a committed offset."""
    key = OffsetCommitKey(group=group_id, topic=partition.topic, partition=partition.partition)
    return versioned_bytes(key, OFFSET_KEYS[-1])


def offset_record(group_id: str, partition: TopicPartition, offset: CommittedOffset) -> KeyValue:
    """Return a committed offset as a record; an expiry time needs an old version of the value."""
    value = OffsetCommitValue(
        offset=offset.offset,
        leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        commit_timestamp=offset.commit_timestamp_ms,
    )
    version = OFFSET_VALUE
    if offset.expire_timestamp_ms is not None:
        value.expire_timestamp = offset.expire_timestamp_ms
        version = OFFSET_VALUE_WITH_EXPIRY
    return KeyValue(offset_key(group_id, partition), versioned_bytes(value, version))


def parse_offset_key(key: bytes) -> tuple[str, TopicPartition]:
    """Return the group id and partition in a committed offset's key. Raises DecodeError."""
    parsed = decode(OffsetCommitKey, memoryview(key)[2:], version_of(key))
    return parsed.group, TopicPartition(parsed.topic, parsed.partition)


def parse_offset(value: bytes, log_offset: int) -> CommittedOffset:
    """Return a committed offset from a value of any version of Kafka. Raises DecodeError."""
    parsed = decode(OffsetCommitValue, memoryview(value)[2:], version_of(value))
    expire_timestamp = None if parsed.expire_timestamp == NOT_SET else parsed.expire_timestamp
    return CommittedOffset(
        parsed.offset, parsed.leader_epoch, parsed.metadata, parsed.commit_timestamp, expire_timestamp, log_offset
    )


# --- classic groups


def classic_group_record(group: ClassicGroup) -> KeyValue:
    """Return a classic group with its members as a record."""
    return versioned(GroupMetadataKey(group=group.group_id), GROUP_KEY, _group_value(group), GROUP_VALUE)


def classic_group_tombstone(group_id: str) -> KeyValue:
    """Return the tombstone that deletes a classic group from the log."""
    return KeyValue(versioned_bytes(GroupMetadataKey(group=group_id), GROUP_KEY), None)


def parse_group_key(key: bytes) -> str:
    """Return the group id in a group's key. Raises DecodeError."""
    return decode(GroupMetadataKey, memoryview(key)[2:], version_of(key)).group


def parse_group(group_id: str, value: bytes) -> ClassicGroup:
    """Return a classic group from a value of any version, Stable if it has members, else Empty. Raises DecodeError."""
    parsed = decode(GroupMetadataValue, memoryview(value)[2:], version_of(value))
    timestamp = None if parsed.current_state_timestamp == NOT_SET else parsed.current_state_timestamp
    group = ClassicGroup(group_id, state_timestamp_ms=timestamp)
    for member in parsed.members:
        group.add(_parse_member(member, parsed))
    group.state = GroupState.STABLE if parsed.members else GroupState.EMPTY
    group.generation_id = parsed.generation
    group.protocol_type = parsed.protocol_type or None
    group.protocol_name = parsed.protocol
    group.leader_id = parsed.leader
    group.subscribed_topics = group.compute_subscribed_topics()
    return group


def _parse_member(member: MemberMetadata, group: GroupMetadataValue) -> ClassicMember:
    has_rebalance_timeout = member.rebalance_timeout != NOT_SET
    return ClassicMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout if has_rebalance_timeout else member.session_timeout,
        session_timeout_ms=member.session_timeout,
        protocol_type=group.protocol_type,
        protocols=[MemberProtocol(group.protocol or "", bytes(member.subscription))],
        assignment=bytes(member.assignment),
    )


def _group_value(group: ClassicGroup) -> GroupMetadataValue:
    return GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=group.protocol_name,
        leader=group.leader_id,
        current_state_timestamp=NOT_SET if group.state_timestamp_ms is None else group.state_timestamp_ms,
        members=[
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata_for(group.protocol_name),
                assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )
