"""Assignments of a consumer group: sets of partitions by topic id, and operations on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, Protocol, TypeAlias, TypeVar
from uuid import UUID

Assignment: TypeAlias = Mapping[UUID, frozenset[int]]
"""Partitions by topic id, as an immutable value; no topic has an empty set."""

NOTHING: Final[Assignment] = {}


class TopicPartitions(Protocol):
    """A list of one topic's partitions, as every message and record of KIP-848 has it."""

    topic_id: UUID
    partitions: list[int]


def from_lists(topics: Iterable[TopicPartitions]) -> Assignment:
    """Return the assignment in a message or record; the partitions of a repeated topic are merged."""
    assignment: dict[UUID, frozenset[int]] = {}
    for topic in topics:
        if topic.partitions:
            assignment[topic.topic_id] = assignment.get(topic.topic_id, frozenset()) | frozenset(topic.partitions)
    return assignment


_Listed = TypeVar("_Listed", bound=TopicPartitions)


def to_lists(assignment: Assignment, make: Callable[..., _Listed]) -> list[_Listed]:
    """Return the assignment as a list for a message or record; `make` is the class of the list's elements."""
    return [make(topic_id=topic_id, partitions=sorted(indexes)) for topic_id, indexes in assignment.items()]


def common(first: Assignment, second: Assignment) -> Assignment:
    """Return the partitions that are in both assignments."""
    both = {topic_id: partitions & second.get(topic_id, frozenset()) for topic_id, partitions in first.items()}
    return {topic_id: partitions for topic_id, partitions in both.items() if partitions}


def without(first: Assignment, second: Assignment) -> Assignment:
    """Return the partitions of the first assignment that are not in the second."""
    rest = {topic_id: partitions - second.get(topic_id, frozenset()) for topic_id, partitions in first.items()}
    return {topic_id: partitions for topic_id, partitions in rest.items() if partitions}


def together(first: Assignment, second: Assignment) -> Assignment:
    """Return the partitions that are in either assignment."""
    return {
        topic_id: first.get(topic_id, frozenset()) | second.get(topic_id, frozenset())
        for topic_id in [*first, *(topic_id for topic_id in second if topic_id not in first)]
    }


def overlap(first: Assignment, second: Assignment) -> bool:
    """Return whether the assignments share a partition."""
    return any(partitions & second.get(topic_id, frozenset()) for topic_id, partitions in first.items())


def is_within(part: Assignment, whole: Assignment) -> bool:
    """Return whether every partition of the first assignment is in the second."""
    return all(partitions <= whole.get(topic_id, frozenset()) for topic_id, partitions in part.items())


class Subscriber(NamedTuple):
    """A member as an assignor sees it."""

    topics: frozenset[UUID]
    """The topics that the member subscribes to and that exist."""
    target: Assignment = NOTHING
    """The member's target assignment before this computation."""
    instance_id: str | None = None
