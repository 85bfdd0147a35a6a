"""Even loads among members who do not all read the same topics: the harder half of the `uniform` assignor.

Balanced means: no partition could go to another of its topic's readers who has at least two partitions less than its
owner. What members have is kept first; what is free goes to whoever has least; then partitions move, one at a time,
until that is so. Each move makes the loads more even, so there is an end.

Source: Kafka `UniformHeterogeneousAssignmentBuilder` (same rules and order of topics).
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from uuid import UUID

from .assignment import Assignment, Subscriber


def assign_balanced(members: Mapping[str, Subscriber], partition_counts: Mapping[UUID, int]) -> dict[str, Assignment]:
    """The target of each member: balanced first, what members have already second."""
    table = _Table(members, partition_counts)
    table.keep_present()
    order = table.hardest_topics_first()
    for topic_id in order:
        table.hand_out(topic_id)
    while sum(map(table.even_out, order)):
        pass
    return table.assignments()


class _Table:
    """Who has what while it is being worked out."""

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
        """Members keep what they have of the topics that they read."""
        for member_id, member in self._members.items():
            for topic_id in member.topics & member.target.keys():
                for index in member.target[topic_id] & self._free[topic_id]:
                    self._give(topic_id, index, member_id)

    def hardest_topics_first(self) -> list[UUID]:
        """Topics with most partitions for each reader first; of equals those with fewer readers."""
        return sorted(
            self._readers,
            key=lambda topic_id: (
                -self._counts[topic_id] / len(self._readers[topic_id]),
                len(self._readers[topic_id]),
                topic_id,
            ),
        )

    def hand_out(self, topic_id: UUID) -> None:
        """Give the topic's free partitions to its readers, each to the one who has least."""
        readers = [(self._loads[member_id], member_id) for member_id in self._readers[topic_id]]
        heapq.heapify(readers)
        for index in sorted(self._free[topic_id]):
            _, member_id = readers[0]
            self._give(topic_id, index, member_id)
            heapq.heapreplace(readers, (self._loads[member_id], member_id))

    def even_out(self, topic_id: UUID) -> int:
        """Move the topic's partitions from readers with many to readers with few; returns how many were moved."""
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
        """The outcome."""
        assignments: dict[str, dict[UUID, frozenset[int]]] = {member_id: {} for member_id in self._members}
        for topic_id, owned in self._owned.items():
            for member_id, indexes in owned.items():
                assignments[member_id][topic_id] = frozenset(indexes)
        return dict(assignments)
