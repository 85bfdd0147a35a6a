"""The audit of a partition's log by its batch headers: gaps, duplicate batches, timestamps that go back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa

MOST_EXAMPLES = 5

SequenceName = tuple[int, int, int]
"""Producer id, epoch and first sequence number: unique among the batches of a log."""


@dataclass(slots=True)
class LogAudit:
    """The sums over one partition's batches in the order of their offsets.

    Offsets are of records unless stated otherwise.
    """

    first_offset: int | None = None
    next_offset: int = 0
    records: int = 0
    markers: int = 0
    """Offsets of control batches, which consumers do not return."""
    holes_in_batches: int = 0
    """Offsets that compaction has removed from the middle of batches."""
    holes_between_batches: int = 0
    """Offsets between batches: removed by compaction, or lost."""
    duplicates: int = 0
    """Batches whose producer, epoch and sequence number occurred before."""
    times_back: int = 0
    """Batches whose youngest record is older than that of the batch before."""
    examples: list[str] = field(default_factory=list)
    """The first few holes between batches and duplicates, as text."""
    _sequences: set[SequenceName] = field(default_factory=set)
    _newest: int = -1

    @classmethod
    def of(cls, tables: Iterable[pa.RecordBatch]) -> LogAudit:
        """Compute the sums over rows of `mode=batches`, which must be in order."""
        audit = cls()
        for rows in tables:
            producers = zip(*(rows[name].to_pylist() for name in _PRODUCER_COLUMNS), strict=True)
            columns = (rows[name].to_pylist() for name in _COLUMNS)
            newest = rows["maxTimestamp"].view(pa.int64()).to_pylist()
            for row in zip(*columns, producers, newest, strict=True):
                audit._take(*row)
        audit._sequences.clear()
        return audit

    def add(self, other: LogAudit) -> None:
        """Raise NotImplementedError: one task audits a partition, as the order of its batches matters."""
        raise NotImplementedError

    def _take(
        self,
        base_offset: int | None,
        last_offset: int,
        records: int | None,
        is_control: bool,
        producer: tuple[int, int, int],
        newest: int | None,
    ) -> None:
        # The header of a compressed v0 or v1 set has its last offset and not its first.
        base_offset = self.next_offset if base_offset is None else base_offset
        if self.first_offset is None:
            self.first_offset = base_offset
        elif base_offset > self.next_offset:
            self.holes_between_batches += base_offset - self.next_offset
            self._note(f"offsets {self.next_offset} to {base_offset - 1} are not there")
        self.next_offset = last_offset + 1
        if is_control:
            self.markers += last_offset - base_offset + 1
            return
        count = last_offset - base_offset + 1 if records is None else records
        self.records += count
        self.holes_in_batches += last_offset - base_offset + 1 - count
        self._look_for_duplicate(producer, base_offset)
        if newest is not None:
            self.times_back += newest < self._newest
            self._newest = newest

    def _look_for_duplicate(self, producer: SequenceName, base_offset: int) -> None:
        if producer[0] < 0 or producer[2] < 0:
            return
        if producer in self._sequences:
            self.duplicates += 1
            self._note(f"offset {base_offset}: sequence {producer[2]} of producer {producer[0]} was there before")
        self._sequences.add(producer)

    def _note(self, example: str) -> None:
        if len(self.examples) < MOST_EXAMPLES:
            self.examples.append(example)


_COLUMNS = ("baseOffset", "lastOffset", "records", "isControl")
_PRODUCER_COLUMNS = ("producerId", "producerEpoch", "baseSequence")
