"""The merge of small files: one entry of the manifest makes the new files valid and the old ones invalid."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import parquet

from ...protocol.topic_partition import AnyTopicPartition
from ..filesystems.files import files_below, parquet_source
from ..filesystems.locations import Location, name_below
from ..spark_tasks import run_tasks
from .manifest import DATA, Manifest
from .manifest_entry import ArchivedBatch
from .part_files import PartWriter, part_name

if TYPE_CHECKING:
    from ..jobs.desk import Desk

SMALL_BYTES = 32 << 20
"""The size below which a file is merged."""
WANTED_BYTES = 128 << 20
"""The approximate size of merged files; a task holds as much of them, decoded."""


@dataclass(frozen=True, slots=True)
class Merger:
    """The work of a merge: files of one folder, relative to `root`, that become one below `staging`."""

    root: Location
    staging: Location
    number: int
    names: Sequence[str]


def merge_small_files(desk: Desk, manifest: Manifest) -> ArchivedBatch | None:
    """Stage merged files; return the batch that replaces their sources with them, or None if a merge is not worthwhile.

    Raises OSError.
    """
    groups = list(_groups(manifest))
    if not groups:
        return None
    work = [Merger(manifest.root, manifest.staging, manifest.next_number, names) for names in groups]
    with desk.progress(len(work), "files") as progress:
        made = run_tasks(desk.session(), work, merge, progress)
    return ArchivedBatch(
        number=manifest.next_number,
        ranges=(),
        files=made,
        rows=0,
        dead_letters=0,
        checksum=0,
        topic_ids={},
        replaces=[name for names in groups for name in names],
    )


def merge(work: Merger) -> str:
    """Write one file in the order of offsets; return its final name. Raises OSError."""
    tables = [parquet.ParquetFile(parquet_source(work.root / name)).read() for name in work.names]
    table = pa.concat_tables(tables)
    offset = "offset" if "offset" in table.column_names else "lastOffset"
    table = table.sort_by([("partition", "ascending"), (offset, "ascending")])
    name = part_name(str(PurePath(work.names[0]).parent), work.number)
    writer = PartWriter(work.staging / name, table.schema)
    writer.write_table(table)
    writer.close()
    return name


def _groups(manifest: Manifest) -> Iterator[list[str]]:
    by_folder: defaultdict[Location, list[AnyTopicPartition]] = defaultdict(list)
    sizes = files_below(manifest.root / DATA)
    for path in manifest.files():
        size = sizes[path]
        if size < SMALL_BYTES:
            by_folder[path.parent].append((name_below(path, manifest.root), size))
    for _, files in sorted(by_folder.items()):
        group: list[str] = []
        total = 0
        for name, size in files:
            if group and total + size > WANTED_BYTES:
                yield from _worth_it(group)
                group, total = [], 0
            group.append(name)
            total += size
        yield from _worth_it(group)


def _worth_it(group: list[str]) -> Iterator[list[str]]:
    if len(group) > 1:
        yield group
