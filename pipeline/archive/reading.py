"""The rows of an archive, partition by partition in the order of offsets, read in tasks with Arrow alone."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from ...protocol.topic_partition import AnyTopicPartition
from ..columns.schemas import TIMESTAMP
from ..errors import DamagedLogError, PipelineError
from ..filesystems.files import parquet_source
from ..filesystems.locations import Location, location, name_below
from .archive import Archive
from .description import Values
from .manifest import ManifestError
from .row_table import TableFile

WINDOW_OFFSETS = 100_000
"""The number of offsets that are sorted at once."""


class FileSpan(NamedTuple):
    """A file, relative to the archive's root unless it is elsewhere, and the range of its offsets, both inclusive."""

    name: str
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class ArchivedPartition:
    """The rows of one partition: the files that may hold them, and its archived offsets by the manifest."""

    root: Location
    topic: str
    partition: int
    order_by: str
    files: tuple[FileSpan, ...]
    spans: tuple[tuple[int, int], ...]
    """The archived offsets, from and until, in order."""

    @property
    def until_offset(self) -> int:
        """The offset after the last archived one."""
        return self.spans[-1][1]

    def rows(self, from_offset: int = 0) -> Iterator[tuple[pa.Table, int]]:
        """Yield rows in the order of offsets, with the exclusive offset up to which they are complete.

        Raises DamagedLogError.
        """
        for start, until in self.spans:
            for first in range(max(start, from_offset), until, WINDOW_OFFSETS):
                end = min(first + WINDOW_OFFSETS, until)
                yield self._window(first, end), end

    def _window(self, first: int, end: int) -> pa.Table:
        at = pc.field(self.order_by)
        wanted = (pc.field("partition") == self.partition) & (at >= first) & (at < end)
        tables = [
            _with_micros(self._read(span, wanted))
            for span in self.files
            if span.first_offset < end and span.last_offset >= first
        ]
        return pa.concat_tables(tables, promote_options="permissive").sort_by(self.order_by) if tables else pa.table({})

    def _read(self, span: FileSpan, wanted: pc.Expression) -> pa.Table:
        path = _location_of(self.root, span.name)
        try:
            return parquet.read_table(
                parquet_source(path), filters=wanted, partitioning=None, page_checksum_verification=True
            )
        except (OSError, pa.ArrowException) as fault:
            raise DamagedLogError(self.topic, self.partition, span.first_offset, f"{path}: {fault}") from fault


def archived_partitions(
    archive: Archive, topics: Collection[str] = (), *, files: Collection[TableFile] | None = None
) -> list[ArchivedPartition]:
    """Return the partitions of these topics, or of all; with `files` those that have rows in these files.

    Raises PipelineError, also for a topic without rows.
    """
    manifest = archive.manifest
    order_by = "lastOffset" if archive.description.values is Values.BATCHES else "offset"
    spans: dict[AnyTopicPartition, list[tuple[int, int]]] = {}
    for covered in manifest.ranges():
        place = (covered.topic, covered.partition)
        spans.setdefault(place, []).append((covered.from_offset, covered.until_offset))
    unknown = set(topics) - {topic for topic, _ in spans}
    if unknown:
        raise ManifestError(f"{manifest.root} has no topic {min(unknown)}")
    found: dict[AnyTopicPartition, list[FileSpan]] = {}
    for path, topic in archive.table.files() if files is None else files:
        name = _name_in(path, manifest.root)
        if not topics or topic in topics:
            for partition, span in _spans_of(path, topic, name, order_by):
                found.setdefault((topic, partition), []).append(span)
    return [
        ArchivedPartition(manifest.root, *place, order_by, tuple(found.get(place, ())), tuple(covered))
        for place, covered in sorted(spans.items())
        if (not topics or place[0] in topics) and (files is None or place in found)
    ]


def _with_micros(rows: pa.Table) -> pa.Table:
    """Convert the timestamps to the archive's type: Spark may have rewritten its files with nanoseconds."""
    at = rows.schema.get_field_index("timestamp")
    return rows.set_column(at, "timestamp", rows["timestamp"].cast(TIMESTAMP, safe=False))


def _name_in(path: Location, root: Location) -> str:
    """Return the name of a table's file relative to the archive's root, or its full name if it is elsewhere."""
    try:
        return name_below(path, root)
    except ValueError:
        return str(path)


def _location_of(root: Location, name: str) -> Location:
    """Return the file of a name that `_name_in` has made."""
    return location(name) if "://" in name else root / name


def _spans_of(path: Location, topic: str, name: str, order_by: str) -> Iterator[tuple[int, FileSpan]]:
    """Yield each partition's range of offsets in a file, by the statistics in its footer. Raises PipelineError."""
    try:
        metadata = parquet.read_metadata(parquet_source(path))
    except (OSError, pa.ArrowException) as fault:
        raise PipelineError(f"{topic}: {path}: {fault}") from fault
    columns = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
    if not {"partition", order_by} <= set(columns):
        raise PipelineError(f"{topic}: {path} has no column partition or no column {order_by}")
    found: dict[int, tuple[int, int]] = {}
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        partitions = group.column(columns["partition"]).statistics
        offsets = group.column(columns[order_by]).statistics
        for partition in range(partitions.min, partitions.max + 1):
            first, last = found.get(partition, (offsets.min, offsets.max))
            found[partition] = (min(first, offsets.min), max(last, offsets.max))
    for partition, (first, last) in found.items():
        yield partition, FileSpan(name, first, last)
