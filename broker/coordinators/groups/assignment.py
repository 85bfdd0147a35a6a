"""Which partitions of which topics: what a member of a consumer group has, gives up or is meant to have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, Protocol, TypeAlias, TypeVar
from uuid import UUID

Assignment: TypeAlias = Mapping[UUID, frozenset[int]]
"""Partitions by topic id, as a value: never changed, and no topic without partitions."""

NOTHING: Final[Assignment] = {}


class TopicPartitions(Protocol):
    """How every message and record of KIP-848 lists the partitions of one topic."""

    topic_id: UUID
    partitions: list[int]


def from_lists(topics: Iterable[TopicPartitions]) -> Assignment:
    """An assignment out of a message or record; a topic that is listed twice counts as one."""
    assignment: dict[UUID, frozenset[int]] = {}
    for topic in topics:
        if topic.partitions:
            assignment[topic.topic_id] = assignment.get(topic.topic_id, frozenset()) | frozenset(topic.partitions)
    return assignment


_Listed = TypeVar("_Listed", bound=TopicPartitions)


def to_lists(assignment: Assignment, make: Callable[..., _Listed]) -> list[_Listed]:
    """The assignment as a message or record lists it; `make` is that one's own class for the partitions of a topic."""
    return [make(topic_id=topic_id, partitions=sorted(indexes)) for topic_id, indexes in assignment.items()]


def common(first: Assignment, second: Assignment) -> Assignment:
    """Partitions in both."""
    both = {topic_id: partitions & second.get(topic_id, frozenset()) for topic_id, partitions in first.items()}
    return {topic_id: partitions for topic_id, partitions in both.items() if partitions}


def without(first: Assignment, second: Assignment) -> Assignment:
    """Partitions of the first that are not in the second."""
    rest = {topic_id: partitions - second.get(topic_id, frozenset()) for topic_id, partitions in first.items()}
    return {topic_id: partitions for topic_id, partitions in rest.items() if partitions}


def together(first: Assignment, second: Assignment) -> Assignment:
    """Partitions in either."""
    return {
        topic_id: first.get(topic_id, frozenset()) | second.get(topic_id, frozenset())
        for topic_id in [*first, *(topic_id for topic_id in second if topic_id not in first)]
    }


def overlap(first: Assignment, second: Assignment) -> bool:
    """Whether some partition is in both."""
    return any(partitions & second.get(topic_id, frozenset()) for topic_id, partitions in first.items())


def is_within(part: Assignment, whole: Assignment) -> bool:
    """Whether the first has no partition that the second lacks."""
    return all(partitions <= whole.get(topic_id, frozenset()) for topic_id, partitions in part.items())


class Subscriber(NamedTuple):
    """A member as an assignor sees it."""

    topics: frozenset[UUID]
    """Topics that it reads, of those that exist."""
    target: Assignment = NOTHING
    """What it is meant to have so far."""
    instance_id: str | None = None
