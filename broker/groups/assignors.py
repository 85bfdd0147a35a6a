"""Server-side assignors (KIP-848): who reads which partitions, decided by the broker.

Both are pure functions from members and topics to the whole group's target. *Range* gives each member a contiguous
stretch of every topic, so that equally partitioned topics go together; *uniform* balances the number of partitions and
moves as few as possible from where they were.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias
from uuid import UUID

from .consumer_member import NOTHING, Assignment

UNIFORM = "uniform"
RANGE = "range"


class Assignee(NamedTuple):
    """A member as an assignor sees it."""

    member_id: str
    instance_id: str | None
    topic_ids: frozenset[UUID]
    """Topics that it reads and that exist."""
    current: Assignment = NOTHING
    """Its present target."""


Targets: TypeAlias = dict[str, Assignment]
Assignor: TypeAlias = Callable[[Sequence[Assignee], Mapping[UUID, int]], Targets]
"""From the members and the number of partitions of each topic to the target of each member."""


def assign_ranges(members: Sequence[Assignee], partition_counts: Mapping[UUID, int]) -> Targets:
    """Split each topic into stretches as long as possible, the first members' one longer if it does not divide.

    Static members come first, by instance id, and so keep their stretch through restarts; then the others by member id.
    Source: Kafka `RangeAssignor`.
    """
    ordered = sorted(members, key=lambda m: (m.instance_id is None, m.instance_id or m.member_id))
    targets: dict[str, dict[UUID, frozenset[int]]] = {member.member_id: {} for member in members}
    for topic_id, count in partition_counts.items():
        readers = [member for member in ordered if topic_id in member.topic_ids]
        first = 0
        for index, member in enumerate(readers):
            length = count // len(readers) + (index < count % len(readers))
            if length:
                targets[member.member_id][topic_id] = frozenset(range(first, first + length))
            first += length
    return {**targets}


def assign_uniformly(members: Sequence[Assignee], partition_counts: Mapping[UUID, int]) -> Targets:
    """Balance the number of partitions, keeping each where it is as long as that does not hurt the balance.

    Where all members read the same topics no partition moves without need; elsewhere a few may.
    """
    balance = _Balance(members, partition_counts)
    if len({member.topic_ids for member in members}) == 1:
        balance.keep_current(balance.fair_shares())
        balance.give_out_the_rest()
    else:
        balance.keep_current()
        balance.give_out_the_rest()
        balance.even_out()
    return balance.targets()


class _Balance:
    """Partitions on their way to members. Ties go to the member that comes first by id, so the outcome is stable."""

    def __init__(self, members: Sequence[Assignee], partition_counts: Mapping[UUID, int]) -> None:
        self._members = sorted(members, key=lambda member: member.member_id)
        self._counts = partition_counts
        self._holder: dict[tuple[UUID, int], str] = {}
        self._load = {member.member_id: 0 for member in self._members}
        self._readers: dict[UUID, list[str]] = {
            topic_id: [member.member_id for member in self._members if topic_id in member.topic_ids]
            for topic_id in partition_counts
        }

    def fair_shares(self) -> dict[str, int]:
        """How many partitions each member should have if all read everything; the larger shares go to who has most."""
        total = sum(count for topic_id, count in self._counts.items() if self._readers[topic_id])
        share, left_over = divmod(total, len(self._members))
        by_possession = sorted(self._members, key=lambda m: -sum(map(len, m.current.values())))
        return {member.member_id: share + (rank < left_over) for rank, member in enumerate(by_possession)}

    def keep_current(self, limits: Mapping[str, int] | None = None) -> None:
        """Let members have what they had, if it exists, is read, and is nobody else's, up to their limits."""
        for member in self._members:
            limit = sys.maxsize if limits is None else limits[member.member_id]
            for topic_id, partitions in member.current.items():
                for partition in sorted(partitions):
                    is_there = topic_id in member.topic_ids and partition < self._counts.get(topic_id, 0)
                    has_room = self._load[member.member_id] < limit
                    if is_there and has_room and (topic_id, partition) not in self._holder:
                        self._give(topic_id, partition, member.member_id)

    def give_out_the_rest(self) -> None:
        """Give each partition that nobody has to the reader with the fewest."""
        for topic_id, count in self._counts.items():
            readers = self._readers[topic_id]
            missing = [partition for partition in range(count) if (topic_id, partition) not in self._holder]
            if not readers or not missing:
                continue
            lightest_first = self._by_load(readers)
            for partition in missing:
                load, member_id = lightest_first[0]
                self._give(topic_id, partition, member_id)
                heapq.heapreplace(lightest_first, (load + 1, member_id))

    def even_out(self) -> None:
        """Move partitions from members with many to readers with few until no move helps.

        Each move takes a partition to a member that has at least two fewer, so the sum of squared loads falls and this
        ends.
        """
        while any([self._even_out_topic(topic_id, count) for topic_id, count in self._counts.items()]):
            pass

    def _even_out_topic(self, topic_id: UUID, count: int) -> bool:
        readers = self._readers[topic_id]
        if len(readers) < 2:
            return False
        has_moved = False
        lightest_first = self._by_load(readers)
        for partition in range(count):
            holder = self._holder[topic_id, partition]
            load, lightest = lightest_first[0]
            if self._load[holder] - load > 1:
                self._load[holder] -= 1
                self._give(topic_id, partition, lightest)
                lightest_first = self._by_load(readers)
                has_moved = True
        return has_moved

    def _by_load(self, readers: Sequence[str]) -> list[tuple[int, str]]:
        heap = [(self._load[member_id], member_id) for member_id in readers]
        heapq.heapify(heap)
        return heap

    def _give(self, topic_id: UUID, partition: int, member_id: str) -> None:
        self._holder[topic_id, partition] = member_id
        self._load[member_id] += 1

    def targets(self) -> Targets:
        """The outcome, by member id."""
        found: dict[str, dict[UUID, set[int]]] = {member_id: {} for member_id in self._load}
        for (topic_id, partition), member_id in self._holder.items():
            found[member_id].setdefault(topic_id, set()).add(partition)
        return {
            member_id: {topic_id: frozenset(partitions) for topic_id, partitions in topics.items()}
            for member_id, topics in found.items()
        }


ASSIGNORS: Mapping[str, Assignor] = {UNIFORM: assign_uniformly, RANGE: assign_ranges}
"""By the name that a member asks for."""

ASSIGNOR_CLASSES = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": UNIFORM,
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": RANGE,
}
"""Names by the classes that `group.consumer.assignors` lists."""
