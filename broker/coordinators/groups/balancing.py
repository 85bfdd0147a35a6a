"""The `uniform` assignor for members with different subscriptions: an even number of partitions for each member.

An assignment is balanced if no partition could move to another subscriber of its topic that has at least two partitions
less than its owner. Members first keep their present partitions; free partitions go to the subscriber with the fewest
partitions; then partitions move, one at a time, until the assignment is balanced. Each move makes the numbers more
even, so the loop terminates.

Source: Kafka `UniformHeterogeneousAssignmentBuilder` (same rules and order of topics).
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from uuid import UUID

from .assignment import Assignment, Subscriber


def assign_balanced(members: Mapping[str, Subscriber], partition_counts: Mapping[UUID, int]) -> dict[str, Assignment]:
    """Return the target of each member, balanced and, as far as that allows, close to the present assignment."""
    table = _Table(members, partition_counts)
    table.keep_present()
    order = table.hardest_topics_first()
    for topic_id in order:
        table.hand_out(topic_id)
    while sum(map(table.even_out, order)):
        pass
    return table.assignments()


class _Table:
    """A table of the owners of partitions during the computation."""

    def __init__(self, members: Mapping[str, Subscriber], partition_counts: Mapping[UUID, int]) -> None:
        self._members = members
        self._counts = partition_counts
        self._loads = dict.fromkeys(members, 0)
        self._readers: dict[UUID, list[str]] = {}
        for member_id, member in members.items():
            for topic_id in member.topics:
                self._readers.setdefault(topic_id, []).append(member_id)
        self._owned: dict[UUID, dict[str, set[int]]] = {topic_id: {} for topic_id in self._readers}
        self._free = {topic_id: set(range(partition_counts[topic_id])) for topic_id in self._readers}

    def keep_present(self) -> None:
        """Assign to members the partitions of their present target, for the topics that they subscribe to."""
        for member_id, member in self._members.items():
            for topic_id in member.topics & member.target.keys():
                for index in member.target[topic_id] & self._free[topic_id]:
                    self._give(topic_id, index, member_id)

    def hardest_topics_first(self) -> list[UUID]:
        """Return topics ordered by partitions for each subscriber, most first; ties by fewer subscribers."""
        return sorted(
            self._readers,
            key=lambda topic_id: (
                -self._counts[topic_id] / len(self._readers[topic_id]),
                len(self._readers[topic_id]),
                topic_id,
            ),
        )

    def hand_out(self, topic_id: UUID) -> None:
        """Assign the topic's free partitions to its subscribers, each to the one with the fewest partitions."""
        readers = [(self._loads[member_id], member_id) for member_id in self._readers[topic_id]]
        heapq.heapify(readers)
        for index in sorted(self._free[topic_id]):
            _, member_id = readers[0]
            self._give(topic_id, index, member_id)
            heapq.heapreplace(readers, (self._loads[member_id], member_id))

    def even_out(self, topic_id: UUID) -> int:
        """Move partitions of the topic from members with many to members with few; return the number of moves."""
        owned = self._owned[topic_id]
        moves = 0
        while owned:
            giver = max(owned, key=lambda member_id: (self._loads[member_id], member_id))
            taker = min(self._readers[topic_id], key=lambda member_id: (self._loads[member_id], member_id))
            if self._loads[giver] <= self._loads[taker] + 1:
                break
            self._move(topic_id, giver, taker)
            moves += 1
        return moves

    def _move(self, topic_id: UUID, giver: str, taker: str) -> None:
        owned = self._owned[topic_id][giver]
        giver_had = self._members[giver].target.get(topic_id, frozenset())
        taker_had = self._members[taker].target.get(topic_id, frozenset())
        index = min(owned, key=lambda index: (index not in taker_had, index in giver_had, index))
        owned.remove(index)
        if not owned:
            del self._owned[topic_id][giver]
        self._loads[giver] -= 1
        self._give(topic_id, index, taker)

    def _give(self, topic_id: UUID, index: int, member_id: str) -> None:
        self._free[topic_id].discard(index)
        self._owned[topic_id].setdefault(member_id, set()).add(index)
        self._loads[member_id] += 1

    def assignments(self) -> dict[str, Assignment]:
        """Return the resulting assignment of each member."""
        assignments: dict[str, dict[UUID, frozenset[int]]] = {member_id: {} for member_id in self._members}
        for topic_id, owned in self._owned.items():
            for member_id, indexes in owned.items():
                assignments[member_id][topic_id] = frozenset(indexes)
        return dict(assignments)
