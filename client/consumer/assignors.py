"""The assignors of consumer groups, which the group's leader runs: pure functions of the members' subscriptions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Protocol

from ...protocol.topic_partition import AnyTopicPartition
from ..errors import ConfigError


@dataclass(frozen=True, slots=True)
class MemberWish:
    """The subscription of one member: its topics, and the partitions that it still owns."""

    topics: Sequence[str]
    owned: Sequence[AnyTopicPartition] = field(default=())


Members = Mapping[str, MemberWish]
Assignment = dict[str, list[AnyTopicPartition]]


class Assignor(Protocol):
    """A strategy that divides partitions among members; all members of a group must support it under its name."""

    name: str
    is_cooperative: bool

    def assign(self, partition_counts: Mapping[str, int], members: Members) -> Assignment:
        """Return the partitions of each member. `partition_counts` has the topics that exist."""


class RangeAssignor:
    """An assignor of consecutive partitions of each topic to each member (Kafka's RangeAssignor, without racks)."""

    name = "range"
    is_cooperative = False

    def assign(self, partition_counts: Mapping[str, int], members: Members) -> Assignment:
        """Return the partitions of each member, see `Assignor.assign`."""
        assignment: Assignment = {member: [] for member in members}
        for topic, count in sorted(partition_counts.items()):
            readers = sorted(member for member, wish in members.items() if topic in wish.topics)
            start = 0
            for index, member in enumerate(readers):
                size = count // len(readers) + (index < count % len(readers))
                assignment[member] += [(topic, partition) for partition in range(start, start + size)]
                start += size
        return assignment


class RoundRobinAssignor:
    """An assignor that gives each partition of each topic to the next member that subscribes to the topic."""

    name = "roundrobin"
    is_cooperative = False

    def assign(self, partition_counts: Mapping[str, int], members: Members) -> Assignment:
        """Return the partitions of each member, see `Assignor.assign`."""
        assignment: Assignment = {member: [] for member in members}
        wanted = {topic for wish in members.values() for topic in wish.topics}
        turns = cycle(sorted(members))
        for topic, count in sorted(partition_counts.items()):
            if topic not in wanted:
                continue
            for partition in range(count):
                member = next(member for member in turns if topic in members[member].topics)
                assignment[member].append((topic, partition))
        return assignment


class CooperativeStickyAssignor:
    """An assignor that balances with as few moves as possible, in two steps (KIP-429).

    A partition that moves is not assigned at first; its owner revokes it and the group rebalances again.
    """

    name = "cooperative-sticky"
    is_cooperative = True

    def assign(self, partition_counts: Mapping[str, int], members: Members) -> Assignment:
        """Return the partitions of each member, see `Assignor.assign`."""
        wanted = {topic for wish in members.values() for topic in wish.topics}
        partitions = [(t, p) for t, count in sorted(partition_counts.items()) if t in wanted for p in range(count)]
        target = self._balance(partitions, members)
        owner = {place: member for member, wish in members.items() for place in wish.owned}
        return {
            member: [place for place in places if owner.get(place, member) == member]
            for member, places in target.items()
        }

    def _balance(self, partitions: Sequence[AnyTopicPartition], members: Members) -> Assignment:
        free = dict.fromkeys(partitions)
        target: Assignment = {member: [] for member in sorted(members)}
        for member in target:
            for place in members[member].owned:
                if place in free and place[0] in members[member].topics:
                    target[member].append(place)
                    del free[place]
        for place in free:
            readers = [member for member in target if place[0] in members[member].topics]
            target[min(readers, key=lambda member: len(target[member]))].append(place)
        while move := self._unfair_place(target, members):
            giver, taker, place = move
            target[giver].remove(place)
            target[taker].append(place)
        return target

    def _unfair_place(self, target: Assignment, members: Members) -> tuple[str, str, AnyTopicPartition] | None:
        """Return (giver, taker, partition) of a move that makes the shares of members more even, or None."""
        for taker in sorted(target, key=lambda member: len(target[member])):
            for giver in sorted(target, key=lambda member: -len(target[member])):
                if len(target[giver]) - len(target[taker]) < 2:
                    break
                for place in reversed(target[giver]):
                    if place[0] in members[taker].topics:
                        return giver, taker, place
        return None


ASSIGNORS: Mapping[str, Assignor] = {
    assignor.name: assignor for assignor in (RangeAssignor(), RoundRobinAssignor(), CooperativeStickyAssignor())
}


def assignors_named(names: str) -> list[Assignor]:
    """Return the assignors of a `partition.assignment.strategy`: names separated by commas. Raises ConfigError."""
    chosen = []
    for name in names.split(","):
        if name.strip() not in ASSIGNORS:
            raise ConfigError(f"partition_assignment_strategy: {name.strip()!r} is none of {', '.join(ASSIGNORS)}")
        chosen.append(ASSIGNORS[name.strip()])
    return chosen
