"""The merge of small files of an Iceberg table, and the removal of files that no snapshot of the table needs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..filesystems.locations import Location
from ..spark_tasks import run_tasks
from .compaction import SMALL_BYTES, WANTED_BYTES
from .iceberg_catalog import data_file_location, folder_of
from .part_files import PartWriter, part_name

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from ..jobs.desk import Desk


@dataclass(frozen=True, slots=True)
class Merger:
    """The work of a merge: data files of one folder of a table that become one file, `staging / name`."""

    metadata: str
    """The location of the table's metadata."""
    paths: Sequence[str]
    staging: Location
    name: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The catalog's settings of the store that the table is in."""


@dataclass(slots=True)
class Merged:
    """Staged files, relative to the table's folder, and the data files of the table that they replace."""

    names: list[str] = field(default_factory=list)
    replaced: list[Any] = field(default_factory=list)


def merge_small_files(desk: Desk, table: Table, staging: Location, number: int) -> Merged:
    """Stage merged files for each group of small files. Raises OSError."""
    by_folder: defaultdict[str, list[Any]] = defaultdict(list)
    for task in table.scan().plan_files():
        if task.file.file_size_in_bytes < SMALL_BYTES and not task.delete_files:
            by_folder[folder_of(table, task.file.file_path)].append(task.file)
    merged, work = Merged(), []
    for folder, files in sorted(by_folder.items()):
        for group in _groups(sorted(files, key=lambda file: file.file_path)):
            name = part_name(folder, number)
            paths = [file.file_path for file in group]
            work.append(Merger(table.metadata_location, paths, staging, name, dict(table.io.properties)))
            merged.names.append(name)
            merged.replaced += group
    with desk.progress(len(work), "files") as progress:
        run_tasks(desk.session(), work, merge, progress)
    return merged


def merge(work: Merger) -> None:
    """Write one file in the order of offsets, with the table's present columns. Raises OSError."""
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan
    from pyiceberg.table import StaticTable

    table = StaticTable.from_metadata(work.metadata, dict(work.properties))
    paths = set(work.paths)
    tasks = [task for task in table.scan().plan_files() if task.file.file_path in paths]
    rows = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue()).to_table(tasks)
    rows = rows.sort_by([("partition", "ascending"), ("offset", "ascending")])
    writer = PartWriter(work.staging / work.name, rows.schema)
    writer.write_table(rows)
    writer.close()


def remove_unreferenced(table: Table, until: datetime) -> None:
    """Remove the files below a local table's location that none of its snapshots needs, if older than `until`.

    Raises OSError.
    """
    needed = {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}
    for snapshot in table.snapshots():
        needed.add(snapshot.manifest_list)
        needed.update(manifest.manifest_path for manifest in snapshot.manifests(table.io))
    needed.update(table.inspect.all_files()["file_path"].to_pylist())
    kept = {data_file_location(uri) for uri in needed}
    for path in Path(str(data_file_location(table.location()))).rglob("*"):
        is_ours = path.suffix in (".parquet", ".avro", ".json") and path not in kept
        if is_ours and path.stat().st_mtime <= until.timestamp():
            path.unlink()


def _groups(files: Sequence[Any]) -> list[list[Any]]:
    groups: list[list[Any]] = []
    total = WANTED_BYTES
    for file in files:
        if total + file.file_size_in_bytes > WANTED_BYTES:
            groups.append([])
            total = 0
        groups[-1].append(file)
        total += file.file_size_in_bytes
    return [group for group in groups if len(group) > 1]
