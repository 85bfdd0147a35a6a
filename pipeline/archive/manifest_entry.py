"""One entry of the manifest of an archive: the offset ranges that were archived together, and their files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """A range of a partition's offsets, from `from_offset` up to but not including `until_offset`."""

    topic: str
    partition: int
    from_offset: int
    until_offset: int


@dataclass(frozen=True, slots=True)
class ArchivedBatch:
    """An entry of the manifest. `files` are those of tasks, relative to the root; `topic_ids` are by topic, as text."""

    number: int
    ranges: Sequence[OffsetRange]
    files: Sequence[str]
    rows: int
    dead_letters: int
    checksum: int
    """The sum over all rows, modulo 2**63: see `checksums`."""
    topic_ids: dict[str, str]
    partition_counts: dict[str, int] = field(default_factory=dict)
    """The partition count of each topic."""
    replaces: Sequence[str] = ()
    """Files of earlier entries that this entry's files replace."""
    staged_in: str = "staged"
    """The folder below the root where the files were staged."""
    retried: Sequence[str] = ()
    """Topics whose dead letters, all of them, are replaced by those in this entry's files, in an archive of tables."""


def empty_batch(number: int) -> ArchivedBatch:
    """Return an entry without rows, which takes its number."""
    return ArchivedBatch(number, ranges=(), files=(), rows=0, dead_letters=0, checksum=0, topic_ids={})
