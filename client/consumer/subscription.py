"""The partitions that a consumer reads, and its position in each: pure state, shared by the consumer's parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ...protocol.topic_partition import AnyTopicPartition


class PartitionPosition:
    """The state of one assigned partition. `offset` is the next record to return; None while it is unknown.

    `in_hand` is the first offset that the user is still processing, None if all returned records are processed. With
    `is_leaving` no more records are returned, as the group revokes the partition.
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
        """Whether records may be returned."""
        return not (self.is_paused or self.is_leaving)

    @property
    def processed(self) -> int | None:
        """The offset after all processed records; None while the position is unknown."""
        return self.offset if self.in_hand is None else self.in_hand

    def note_processed(self, offset: int) -> None:
        """Note that the user has processed all records before `offset`."""
        if self.in_hand is not None and self.in_hand < offset:
            self.in_hand = offset if offset < (self.offset or 0) else None

    def seek(self, offset: int | None) -> None:
        """Continue at `offset`; None lets the committed or reset position be found again."""
        self.offset = offset
        self.in_hand = None
        self.on_unknown_outcome = None


class DoubtfulOffsets(NamedTuple):
    """The range of a transaction with an unknown outcome: [start, end).

    Reading continues at `end` only if committed.
    """

    start: int
    end: int


class Subscription:
    """The assignment, made by the user (`assign`) or by the group."""

    def __init__(self) -> None:
        self.topics: frozenset[str] = frozenset()
        self.positions: dict[AnyTopicPartition, PartitionPosition] = {}
        self._in_hand: list[PartitionPosition] = []

    def assign(self, partitions: Iterable[AnyTopicPartition]) -> None:
        """Set the assigned partitions. Partitions that stay assigned keep their positions."""
        wanted = dict.fromkeys(partitions)
        self.revoke([place for place in self.positions if place not in wanted])
        self.positions = {place: self.positions.get(place) or PartitionPosition() for place in wanted}

    def withhold(self, partitions: Iterable[AnyTopicPartition]) -> None:
        """Withhold further records of these partitions: the group revokes them."""
        for place in partitions:
            if (position := self.positions.get(place)) is not None:
                position.is_leaving = True

    def revoke(self, partitions: Iterable[AnyTopicPartition]) -> None:
        """Stop reading these partitions: none of their records are returned, fetched ones included."""
        for place in partitions:
            if (position := self.positions.pop(place, None)) is not None:
                position.is_leaving = True

    def assigned(self, place: AnyTopicPartition) -> PartitionPosition:
        """Return the position of a partition. Raises KeyError if the partition is not assigned."""
        position = self.positions.get(place)
        if position is None:
            raise KeyError(f"{place[0]}-{place[1]} is not assigned")
        return position

    def unpositioned(self) -> list[AnyTopicPartition]:
        """Return the partitions whose first offset is not found yet."""
        return [place for place, position in self.positions.items() if position.offset is None]

    # --- records that were returned to the user ---

    def hand_out(self, position: PartitionPosition, first_offset: int, next_offset: int) -> None:
        """Note that the records from `first_offset` up to `next_offset` are returned to the user."""
        position.offset = next_offset
        if position.in_hand is None:
            position.in_hand = first_offset
            self._in_hand.append(position)

    def finish_in_hand(self) -> None:
        """Note that the user has processed all returned records."""
        if self._in_hand:
            for position in self._in_hand:
                position.in_hand = None
            self._in_hand.clear()

    def note_processed(self, offsets: Mapping[AnyTopicPartition, int]) -> None:
        """Note that the user has processed all records before these offsets."""
        for place, offset in offsets.items():
            if (position := self.positions.get(place)) is not None:
                position.note_processed(offset)

    def consumed(self) -> dict[AnyTopicPartition, int]:
        """Return the offset of the next record to return, for each partition that has a position."""
        return {place: position.offset for place, position in self.positions.items() if position.offset is not None}

    def processed(self) -> dict[AnyTopicPartition, int]:
        """Return the offset after the processed records, for each partition that has a position."""
        return {place: offset for place, p in self.positions.items() if (offset := p.processed) is not None}


def by_topic(places: Iterable[AnyTopicPartition]) -> dict[str, list[int]]:
    """Return the partitions of each topic, both in order."""
    partitions: dict[str, list[int]] = {}
    for topic, partition in sorted(places):
        partitions.setdefault(topic, []).append(partition)
    return partitions
