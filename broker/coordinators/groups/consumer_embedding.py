"""The bytes that classic consumers send in JoinGroup and receive in SyncGroup, decoded and encoded by the broker.

A broker need not decode them for a classic group. It must when classic members are in a group of the consumer protocol:
their subscriptions and owned partitions arrive, and their assignments are sent, in this form. Each is an int16 version
and a message; newer versions are read as the newest known one, as versions only append fields.

Source: Kafka `ConsumerProtocol`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

from ....protocol.codec import decode, encode
from ....protocol.errors import DecodeError
from ....protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from ....protocol.messages.consumer_protocol_assignment import TopicPartition as AssignedPartitions
from ....protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ....protocol.schema import Message
from .assignment import Assignment
from .current_topics import CurrentTopics

OLDEST_VERSION, NEWEST_VERSION = 0, 3

_Embedded = TypeVar("_Embedded", bound=Message)


class _TopicPartitions(Protocol):
    topic: str
    partitions: list[int]


def subscription_version(metadata: bytes) -> int:
    """Return the version of a member's subscription, at most the newest known one. Raises DecodeError."""
    if len(metadata) < 2:
        raise DecodeError("no version in an embedded message")
    version = int.from_bytes(metadata[:2], "big", signed=True)
    if version < OLDEST_VERSION:
        raise DecodeError(f"embedded version {version}")
    return min(version, NEWEST_VERSION)


def subscription_of(metadata: bytes) -> ConsumerProtocolSubscription:
    """Decode the subscription that a member sends in JoinGroup. Raises DecodeError."""
    return _parsed(ConsumerProtocolSubscription, metadata)


def assignment_of(data: bytes, topics: CurrentTopics) -> Assignment:
    """Decode the assignment that a member received in SyncGroup, without deleted topics. Raises DecodeError."""
    return named_partitions(_parsed(ConsumerProtocolAssignment, data).assigned_partitions, topics)


def named_partitions(listed: Iterable[_TopicPartitions], topics: CurrentTopics) -> Assignment:
    """Return the assignment for partitions listed by topic name, without deleted topics."""
    return {
        topics.by_name[topic.topic].topic_id: frozenset(topic.partitions)
        for topic in listed
        if topic.topic in topics.by_name and topic.partitions
    }


def embedded_assignment(assignment: Assignment, topics: CurrentTopics, version: int) -> bytes:
    """Encode an assignment for SyncGroup, without deleted topics."""
    known = [(topics.by_id(topic_id), partitions) for topic_id, partitions in assignment.items()]
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            AssignedPartitions(topic=topic.name, partitions=sorted(partitions))
            for topic, partitions in known
            if topic is not None
        ]
    )
    return version.to_bytes(2, "big") + encode(message, version)


def _parsed(message_type: type[_Embedded], data: bytes) -> _Embedded:
    return decode(message_type, memoryview(data)[2:], subscription_version(data))
