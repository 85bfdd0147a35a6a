"""Which partitions a consumer reads, and where it is in each. Pure state, shared by the consumer's parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

TopicPartition = tuple[str, int]


class PartitionPosition:
    """One assigned partition. `offset` is the next record to hand out; None until it is known.

    `in_hand` is the first offset that the user is still busy with, None if the user has finished all that was handed
    out. With `is_leaving` nothing more is handed out, as the group has taken the partition back.
    """

    __slots__ = (
        "high_watermark",
        "in_hand",
        "is_leaving",
        "is_paused",
        "last_stable_offset",
        "log_start_offset",
        "offset",
        "on_unknown_outcome",
    )

    def __init__(self) -> None:
        self.offset: int | None = None
        self.in_hand: int | None = None
        self.is_paused = False
        self.is_leaving = False
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start_offset = -1
        self.on_unknown_outcome: DoubtfulOffsets | None = None

    @property
    def is_handed_out(self) -> bool:
        """Whether records may be handed out."""
        return not (self.is_paused or self.is_leaving)

    @property
    def processed(self) -> int | None:
        """The offset behind all records that the user has finished; None while no position is known."""
        return self.offset if self.in_hand is None else self.in_hand

    def note_processed(self, offset: int) -> None:
        """Note that the user has finished what lies before `offset`."""
        if self.in_hand is not None and self.in_hand < offset:
            self.in_hand = offset if offset < (self.offset or 0) else None

    def seek(self, offset: int | None) -> None:
        """Go on from `offset`; None looks for the committed or reset position anew."""
        self.offset = offset
        self.in_hand = None
        self.on_unknown_outcome = None


class DoubtfulOffsets(NamedTuple):
    """Where a transaction read that nobody knows the outcome of: [start, end). Read on at `end` only if committed."""

    start: int
    end: int


class Subscription:
    """The assignment, whoever made it: the user (`assign`) or the group."""

    def __init__(self) -> None:
        self.topics: frozenset[str] = frozenset()
        self.positions: dict[TopicPartition, PartitionPosition] = {}
        self._in_hand: list[PartitionPosition] = []

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions, and no others. Those kept keep their positions."""
        wanted = dict.fromkeys(partitions)
        self.revoke([place for place in self.positions if place not in wanted])
        self.positions = {place: self.positions.get(place) or PartitionPosition() for place in wanted}

    def withhold(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out nothing more of these: the group has taken them back."""
        for place in partitions:
            if (position := self.positions.get(place)) is not None:
                position.is_leaving = True

    def revoke(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading these: nothing of them is handed out, not even what was fetched already."""
        for place in partitions:
            if (position := self.positions.pop(place, None)) is not None:
                position.is_leaving = True

    def seek(self, place: TopicPartition, offset: int | None) -> None:
        """Move a position. Raises KeyError if the partition is not assigned."""
        self.positions[place].seek(offset)

    def unpositioned(self) -> list[TopicPartition]:
        """The partitions whose first offset has still to be found."""
        return [place for place, position in self.positions.items() if position.offset is None]

    # --- what the user has ---

    def hand_out(self, position: PartitionPosition, first_offset: int, next_offset: int) -> None:
        """Note that the user is given the records from `first_offset` on, up to `next_offset`."""
        position.offset = next_offset
        if position.in_hand is None:
            position.in_hand = first_offset
            self._in_hand.append(position)

    def finish_in_hand(self) -> None:
        """Note that the user has finished all that was handed out."""
        if self._in_hand:
            for position in self._in_hand:
                position.in_hand = None
            self._in_hand.clear()

    def note_processed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Note that the user has finished what lies before these offsets."""
        for place, offset in offsets.items():
            if (position := self.positions.get(place)) is not None:
                position.note_processed(offset)

    def consumed(self) -> dict[TopicPartition, int]:
        """The offset of the next record to hand out, for each partition that has one."""
        return {place: position.offset for place, position in self.positions.items() if position.offset is not None}

    def processed(self) -> dict[TopicPartition, int]:
        """As `consumed`, without what the user is still busy with."""
        return {place: offset for place, p in self.positions.items() if (offset := p.processed) is not None}


def by_topic(places: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The partitions of each topic, both in order."""
    partitions: dict[str, list[int]] = {}
    for topic, partition in sorted(places):
        partitions.setdefault(topic, []).append(partition)
    return partitions
