"""Which partitions a consumer reads, and where it is in each. Pure state, shared by the consumer's parts."""

from __future__ import annotations

from collections.abc import Iterable

TopicPartition = tuple[str, int]


class PartitionPosition:
    """One assigned partition. `offset` is the next record to hand out; None until it is known."""

    __slots__ = ("high_watermark", "is_paused", "last_stable_offset", "log_start_offset", "offset")

    def __init__(self) -> None:
        self.offset: int | None = None
        self.is_paused = False
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start_offset = -1

    def seek(self, offset: int | None) -> None:
        """Go on from `offset`; None looks for the committed or reset position anew."""
        self.offset = offset


class Subscription:
    """The assignment, whoever made it: the user (`assign`) or the group.

    Invariant: `generation` rises with every change of assignment or position that makes fetched data stale.
    """

    def __init__(self) -> None:
        self.topics: frozenset[str] = frozenset()
        self.positions: dict[TopicPartition, PartitionPosition] = {}
        self.generation = 0

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions, and no others. Those kept keep their positions."""
        wanted = dict.fromkeys(partitions)
        self.positions = {place: self.positions.get(place) or PartitionPosition() for place in wanted}
        self.generation += 1

    def revoke(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading these."""
        for place in partitions:
            self.positions.pop(place, None)
        self.generation += 1

    def seek(self, place: TopicPartition, offset: int | None) -> None:
        """Move a position. Raises KeyError if the partition is not assigned."""
        self.positions[place].seek(offset)
        self.generation += 1

    def unpositioned(self) -> list[TopicPartition]:
        """The partitions whose first offset has still to be found."""
        return [place for place, position in self.positions.items() if position.offset is None]

    def consumed(self) -> dict[TopicPartition, int]:
        """Positions to commit: the offset of the next record for each partition that has one."""
        return {place: position.offset for place, position in self.positions.items() if position.offset is not None}


def by_topic(places: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The partitions of each topic, both in order."""
    partitions: dict[str, list[int]] = {}
    for topic, partition in sorted(places):
        partitions.setdefault(topic, []).append(partition)
    return partitions
