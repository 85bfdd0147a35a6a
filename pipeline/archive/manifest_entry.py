"""One entry of the manifest of an archive: the offset ranges that were archived together, and their files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """Offsets of one partition, from `from_offset` up to but not with `until_offset`."""

    topic: str
    partition: int
    from_offset: int
    until_offset: int


@dataclass(frozen=True, slots=True)
class ArchivedBatch:
    """One entry. `files` are those that tasks wrote, relative to the root; `topic_ids` are by topic, as text."""

    number: int
    ranges: Sequence[OffsetRange]
    files: Sequence[str]
    rows: int
    dead_letters: int
    checksum: int
    """Sum over all rows, modulo 2**63: see `checksums`."""
    topic_ids: dict[str, str]
    partition_counts: dict[str, int] = field(default_factory=dict)
    """How many partitions each topic had."""
    replaces: Sequence[str] = ()
    """Files of earlier entries that count no more: this entry's files have their rows."""
