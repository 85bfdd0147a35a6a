"""The server-side assignors `range` and `uniform` of KIP-848, which compute target assignments.

`range` gives each member one contiguous range of every topic; if all members subscribe to the same topics, and these
have equally many partitions, partitions of the same number go to the same member. `uniform` ignores topic boundaries:
it keeps the numbers of partitions of the members within one of each other, and moves as few partitions as that allows.

Source: Kafka `RangeAssignor`, `UniformAssignor`, `UniformHomogeneousAssignmentBuilder`. Where Kafka's result depends on
the order of a hash map, this one depends on the order in which members joined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeAlias
from uuid import UUID

from ...config import ConfigError
from .assignment import NOTHING, Assignment, Subscriber
from .balancing import assign_balanced

Assignor: TypeAlias = Callable[[Mapping[str, Subscriber], Mapping[UUID, int]], dict[str, Assignment]]
"""Takes members by id, in the order of joining, and the partition count of each subscribed topic; returns targets."""

RANGE: Final = "range"
UNIFORM: Final = "uniform"


def assign_range(members: Mapping[str, Subscriber], partition_counts: Mapping[UUID, int]) -> dict[str, Assignment]:
    """Assign contiguous ranges; the first members get one partition more if a topic does not divide evenly.

    Static members come first, ordered by instance id, so that their ranges stay the same when they restart.
    """
    readers = Counter(topic_id for member in members.values() for topic_id in member.topics)
    stretches = {topic_id: _stretches(partition_counts[topic_id], number) for topic_id, number in readers.items()}
    assignments: dict[str, Assignment] = {}
    for member_id in sorted(members, key=lambda member_id: _range_order(member_id, members[member_id])):
        shares = {topic_id: next(stretches[topic_id]) for topic_id in members[member_id].topics}
        assignments[member_id] = {topic_id: frozenset(share) for topic_id, share in shares.items() if share}
    return assignments


def _range_order(member_id: str, member: Subscriber) -> tuple[bool, str]:
    if member.instance_id is None:
        return True, member_id
    return False, member.instance_id


def _stretches(partition_count: int, member_count: int) -> Iterator[range]:
    least, extra = divmod(partition_count, member_count)
    start = 0
    for index in range(member_count):
        end = start + least + (index < extra)
        yield range(start, end)
        start = end


def assign_uniform(members: Mapping[str, Subscriber], partition_counts: Mapping[UUID, int]) -> dict[str, Assignment]:
    """Assign partitions evenly and, as far as that allows, to the members that have them already."""
    if len({member.topics for member in members.values()}) > 1:
        return assign_balanced(members, partition_counts)
    return _assign_evenly(members, partition_counts)


def _assign_evenly(members: Mapping[str, Subscriber], partition_counts: Mapping[UUID, int]) -> dict[str, Assignment]:
    """Assign partitions to members with equal subscriptions: each gets the same number, or one more."""
    free = {(topic_id, index): None for topic_id, count in partition_counts.items() for index in range(count)}
    if not members or not free:
        return dict.fromkeys(members, NOTHING)
    least, extra = divmod(len(free), len(members))
    present = {
        member_id: [partition for partition in _listed(member.target) if partition in free]
        for member_id, member in members.items()
    }
    quotas = dict.fromkeys(members, least)
    # Members that already have an extra partition keep it, which saves one move for each of them.
    for member_id in sorted(members, key=lambda member_id: len(present[member_id]) <= least)[:extra]:
        quotas[member_id] += 1
    kept: dict[str, list[tuple[UUID, int]]] = {}
    for member_id, partitions in present.items():
        kept[member_id] = [partition for partition in partitions if partition in free][: quotas[member_id]]
        for partition in kept[member_id]:
            del free[partition]
    rest = iter(free)
    for member_id, partitions in kept.items():
        partitions.extend(next(rest) for _ in range(quotas[member_id] - len(partitions)))
    return {member_id: _by_topic(partitions) for member_id, partitions in kept.items()}


def _listed(assignment: Assignment) -> Iterator[tuple[UUID, int]]:
    return ((topic_id, index) for topic_id, partitions in assignment.items() for index in sorted(partitions))


def _by_topic(partitions: Iterable[tuple[UUID, int]]) -> Assignment:
    indexes: dict[UUID, list[int]] = {}
    for topic_id, index in partitions:
        indexes.setdefault(topic_id, []).append(index)
    return {topic_id: frozenset(listed) for topic_id, listed in indexes.items()}


_KNOWN: Final[Mapping[str, tuple[str, Assignor]]] = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": (UNIFORM, assign_uniform),
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": (RANGE, assign_range),
}


def assignors_by_name(class_names: Iterable[str]) -> dict[str, Assignor]:
    """Return the assignors of `group.consumer.assignors`, the default one first.

    Raises ConfigError for an unknown class name.
    """
    names = list(class_names)
    unknown = [name for name in names if name not in _KNOWN]
    if unknown or not names:
        raise ConfigError(f"group.consumer.assignors={','.join(names)}: use one or more of {', '.join(_KNOWN)}")
    return dict(_KNOWN[name] for name in names)
