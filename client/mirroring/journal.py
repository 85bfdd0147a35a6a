"""The progress of one partition's copy, and the batches about to be sent: committed before they are sent.

The journal is the metadata of the offset that the mirror's group commits at the target; the offset itself is the next
source offset to copy::

    gregor-mirror 1;producer id;epoch;sequence;target offset;12,12,o3,8/20

All records before the source offset, and no others, are before the target offset. The steps after it are the batches
that are sent next, in order: a number of records from as many source offsets or, where records are missing at the
source, `8/20`: 8 records from 20 offsets. `o` marks batches of format v0 or v1, which have no sequence numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ...protocol.records.v2 import next_sequence
from ..wire.group_offsets import CommittedOffset
from .errors import MirrorError
from .outgoing import Outgoing

HEAD = "gregor-mirror 1"
MAX_TEXT_BYTES = 4_000
"""The largest size of a journal, below Kafka's default of `offset.metadata.max.bytes`, 4096."""


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a partition's copy: the next offsets at both ends, and the sequence number of the next batch."""

    source_offset: int
    target_offset: int
    producer_id: int
    producer_epoch: int
    sequence: int

    def after(self, step: Step) -> Position:
        """Return the position after `step` has been sent."""
        return replace(
            self,
            source_offset=self.source_offset + step.source_width,
            target_offset=self.target_offset + step.record_count,
            sequence=self.sequence if step.is_legacy else next_sequence(self.sequence, step.record_count),
        )


@dataclass(frozen=True, slots=True)
class Step:
    """A batch to be sent: its record count, and the number of source offsets that it covers."""

    record_count: int
    source_width: int
    is_legacy: bool = False

    def __str__(self) -> str:
        width = "" if self.source_width == self.record_count else f"/{self.source_width}"
        return f"{'o' if self.is_legacy else ''}{self.record_count}{width}"

    @classmethod
    def parse(cls, text: str) -> Step:
        """Parse a step from its text. Raises ValueError."""
        count, slash, width = text.removeprefix("o").partition("/")
        return cls(int(count), int(width) if slash else int(count), text.startswith("o"))


@dataclass(frozen=True, slots=True)
class Journal:
    """A confirmed position, and the steps that may have been sent since."""

    position: Position
    steps: tuple[Step, ...] = ()

    def committed(self) -> CommittedOffset:
        """Return the journal as the group's committed offset and its metadata."""
        at = self.position
        fields = [HEAD, at.producer_id, at.producer_epoch, at.sequence, at.target_offset]
        return CommittedOffset(at.source_offset, ";".join(map(str, [*fields, ",".join(map(str, self.steps))])))

    @classmethod
    def read(cls, entry: CommittedOffset) -> Journal:
        """Parse a journal. Raises MirrorError if the text is not a journal: the group is used for something else."""
        try:
            head, *numbers, steps = entry.metadata.split(";")
            producer_id, epoch, sequence, target_offset = map(int, numbers)
            if head != HEAD:
                raise ValueError(head)
            position = Position(entry.offset, target_offset, producer_id, epoch, sequence)
            return cls(position, tuple(Step.parse(text) for text in steps.split(",") if text))
        except ValueError as fault:
            raise MirrorError(
                f"{entry.metadata!r} is not the journal of a mirror: "
                "does another client commit offsets for the mirror's group?"
            ) from fault

    def resumed(self, target_end: int) -> Position:
        """Return the position to continue at if the target's log ends at `target_end`.

        Raises MirrorError if this mirror's steps cannot lead to that end.
        """
        position = self.position
        for step in self.steps:
            if position.target_offset >= target_end:
                break
            position = position.after(step)
        if position.target_offset == target_end:
            return position
        if target_end < self.position.target_offset:
            lost = self.position.target_offset - target_end
            raise MirrorError(
                f"the target has lost {lost} records that were copied: its log ends at offset {target_end}"
            )
        raise MirrorError(
            f"another client has written to the target: its log ends at offset {target_end}, "
            f"and the mirror's batches end at {self.position.target_offset} or {position.target_offset}"
        )


def steps_that_fit(start: Position, waiting: Iterable[Outgoing]) -> list[tuple[Outgoing, Step]]:
    """Return the first of `waiting` that one journal can list; at least one.

    A batch of an old format, whose repetition the target cannot detect, is sent alone: no batch may follow it while
    its outcome is unknown.
    """
    taken: list[tuple[Outgoing, Step]] = []
    source_offset, size = start.source_offset, 0
    for outgoing in waiting:
        step = Step(outgoing.record_count, outgoing.source_end - source_offset, outgoing.is_legacy)
        size += len(str(step)) + 1
        if taken and (outgoing.is_legacy or size > MAX_TEXT_BYTES - 100):
            break
        taken.append((outgoing, step))
        if outgoing.is_legacy:
            break
        source_offset = outgoing.source_end
    return taken
