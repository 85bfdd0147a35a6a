"""The state of a manifest: the sum of its entries, in few numbers and the names of files.

A checkpoint is such a state in a file; with it the entries before it need not be kept.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from ...protocol.topic_partition import AnyTopicPartition
from .manifest_entry import ArchivedBatch

Span = tuple[int, int]
"""Offsets from the first up to but not including the second."""

FORMAT = 1
"""The format version of checkpoints. A later version is refused."""


@dataclass(slots=True)
class ManifestState:
    """The sum of entries 0 to `next_number` - 1. With `has_files` False names of files are not kept."""

    next_number: int = 0
    spans: dict[AnyTopicPartition, list[Span]] = field(default_factory=dict)
    """The archived offsets by (topic, partition), in order, in as few spans as possible."""
    names: dict[str, None] = field(default_factory=dict)
    """The valid files, data and dead letters, in the order of their entries."""
    topic_ids: dict[str, str] = field(default_factory=dict)
    partition_counts: dict[str, int] = field(default_factory=dict)
    checksum: int = 0
    """The sum of the entries' checksums; modulo `checksums.MODULUS` it is that of all rows."""
    has_files: bool = True

    def add(self, batch: ArchivedBatch) -> None:
        """Add the next entry."""
        for covered in batch.ranges:
            spans = self.spans.setdefault((covered.topic, covered.partition), [])
            _cover(spans, covered.from_offset, covered.until_offset)
        if self.has_files:
            for replaced in batch.replaces:
                self.names.pop(replaced, None)
            self.names.update(dict.fromkeys(batch.files))
        self.topic_ids.update(batch.topic_ids)
        self.partition_counts.update(batch.partition_counts)
        self.checksum += batch.checksum
        self.next_number = batch.number + 1

    def as_fields(self) -> dict[str, Any]:
        """Return the fields of a checkpoint: folders with the names of their files, topics with their partitions."""
        folders: dict[str, list[str]] = {}
        for name in self.names:
            folder, _, file = name.rpartition("/")
            folders.setdefault(folder, []).append(file)
        spans: dict[str, dict[str, list[Span]]] = {}
        for (topic, partition), covered in sorted(self.spans.items()):
            spans.setdefault(topic, {})[str(partition)] = covered
        return {
            "format": FORMAT,
            "next_number": self.next_number,
            "spans": spans,
            "files": folders,
            "topic_ids": self.topic_ids,
            "partition_counts": self.partition_counts,
            "checksum": self.checksum,
        }

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any], *, has_files: bool) -> Self:
        """Return the state in a checkpoint.

        Raises KeyError, TypeError, ValueError, AttributeError for invalid fields.
        """
        if fields["format"] != FORMAT:
            raise ValueError(f"it has format {fields['format']}, and this version reads format {FORMAT}")
        return cls(
            next_number=int(fields["next_number"]),
            spans={
                (topic, int(partition)): [(int(start), int(until)) for start, until in covered]
                for topic, partitions in fields["spans"].items()
                for partition, covered in partitions.items()
            },
            names=dict.fromkeys(_names(fields["files"])) if has_files else {},
            topic_ids=dict(fields["topic_ids"]),
            partition_counts={topic: int(count) for topic, count in fields["partition_counts"].items()},
            checksum=int(fields["checksum"]),
            has_files=has_files,
        )


def _names(folders: Mapping[str, Iterable[str]]) -> Iterable[str]:
    for folder, files in folders.items():
        yield from (f"{folder}/{file}" for file in files)


def _cover(spans: list[Span], start: int, until: int) -> None:
    """Add offsets to ordered spans, and join spans that are adjacent or overlap."""
    if start >= until:
        return
    if spans and spans[-1][1] == start:
        spans[-1] = (spans[-1][0], until)
        return
    first = bisect_left(spans, start, key=lambda span: span[1])
    last = first
    while last < len(spans) and spans[last][0] <= until:
        start, until = min(start, spans[last][0]), max(until, spans[last][1])
        last += 1
    spans[first:last] = [(start, until)]
