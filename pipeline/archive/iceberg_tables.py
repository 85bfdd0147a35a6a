"""An archive's rows in tables of Apache Iceberg, one snapshot per batch, by Iceberg's own library for Python.

Tasks stage Parquet files as for any archive; these files become the table's data files. The number of the batch is a
property of the table, `gregor.archive.batch`, that changes in the same commit, so a batch that is published again,
because its writer was killed before the manifest counted it, changes nothing. Its ranges of offsets are in the summary
of the snapshot, `gregor.archive.ranges`.

There is no Iceberg for Spark 4.2 (its jar for 4.1 fails there with IncompatibleClassChangeError), so Spark takes part
only as the executor of tasks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import parquet

from ..errors import PipelineError
from ..filesystems.files import make_durable, move, parquet_source
from ..filesystems.locations import Location
from .avro_types import AvroColumn
from .description import ArchiveDescription, Period
from .field_folders import column_name
from .iceberg_catalog import TableId, data_file_location, open_catalog, table_id
from .iceberg_compaction import merge_small_files, remove_unreferenced
from .manifest import DATA, DEAD_LETTERS, Manifest, ManifestError
from .manifest_entry import ArchivedBatch
from .row_table import TableFile, parquet_frame
from .schema_evolution import VALUE, Renamed, changes

if TYPE_CHECKING:
    from pyiceberg.table import Table, Transaction
    from pyspark.sql import DataFrame, SparkSession

    from ..jobs.desk import Desk

BATCH = "gregor.archive.batch"
RANGES = "gregor.archive.ranges"
ATTEMPTS = 5
"""The number of attempts of a commit while other programs change the table."""
_PROPERTIES = {
    # Without these each commit would cost more than the one before.
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
}


class IcebergTables:
    """The two tables of Iceberg in an archive; see row_table.RowTable."""

    def __init__(self, description: ArchiveDescription, manifest: Manifest) -> None:
        """Open the catalog. Raises PipelineError without PyIceberg, or if the tables belong to another archive."""
        self._root = manifest.root
        self._staging = manifest.staging
        """The folder of files that this writer merges; a batch names the folder of its own."""
        self._description = description
        self._catalog = open_catalog(description, manifest.root)
        if self._load(DATA) is not None and not manifest.next_number and manifest.pending is None:
            raise ManifestError(f"{self._id(DATA)} is a table, and no manifest says what it has: use another root")

    def publish(self, batch: ArchivedBatch) -> None:
        """Append a staged batch to the tables, see RowTable.publish."""
        for folder in (DATA, DEAD_LETTERS):
            names = [name for name in batch.files if name.startswith(f"{folder}/")]
            if folder == DEAD_LETTERS and batch.retried:
                self._replace_letters(names, batch)
            elif names:
                table = self._load(folder) or self._create(folder, batch.staged_in, names[0])
                if int(table.properties.get(BATCH, -1)) < batch.number:
                    self._append(table, folder, names, batch)

    def files(self, folder: str = DATA) -> list[TableFile]:
        """Return the table's current files, see RowTable.files."""
        table = self._load(folder)
        found = []
        for task in table.scan().plan_files() if table else ():
            if task.delete_files:
                raise PipelineError(f"{self._id(folder)} has files of deleted rows: only Iceberg can read it then")
            found.append(TableFile(data_file_location(task.file.file_path), _topic_of(table, task.file)))
        return sorted(found, key=lambda file: str(file.path))

    def frame(self, session: SparkSession, names: Collection[str]) -> DataFrame:
        """Return the rows of files as a data frame, see RowTable.frame."""
        table = self._load(DATA)
        if table is None:
            raise PipelineError(f"{self._id(DATA)} is not a table")
        base = data_file_location(table.location())
        return parquet_frame(session, base, [self._root / name for name in sorted(names)])

    def evolve(self, wanted: pa.DataType, column: AvroColumn | None) -> None:
        """Change the table's schema, see RowTable.evolve."""
        table = self._load(DATA)
        if table is None:
            return
        planned = changes(table.schema().as_arrow().field(VALUE).type, wanted, column)

        def change(transaction: Transaction) -> None:
            for renamed in planned:
                if isinstance(renamed, Renamed):
                    with transaction.update_schema() as update:
                        update.rename_column(renamed.path, renamed.name)
            with transaction.update_schema() as update:
                update.union_by_name(pa.schema([(VALUE, wanted)]))

        _commit(table, change)

    def compact(self, desk: Desk, manifest: Manifest, kept_hours: float) -> tuple[int, int, ArchivedBatch | None]:
        """Merge small files and expire snapshots, see RowTable.compact."""
        replaced = made = 0
        until = datetime.now(UTC) - timedelta(hours=kept_hours)
        for folder in (DATA, DEAD_LETTERS):
            table = self._load(folder)
            if table is None:
                continue
            merged = merge_small_files(desk, table, self._staging / folder, manifest.next_number)
            if merged.names:
                new = self._move(table, folder, self._staging, [f"{folder}/{name}" for name in merged.names])
                _commit(table, partial(_replace, merged.replaced, new))
            replaced, made = replaced + len(merged.replaced), made + len(merged.names)
            table.maintenance.expire_snapshots().older_than(until.replace(tzinfo=None)).commit()
            if self._description.table is None:
                remove_unreferenced(table.refresh(), until)
        return replaced, made, None

    def sweep(self) -> list[Location]:
        """Return no files, see RowTable.sweep: the table itself records its valid files."""
        return []

    def _append(self, table: Table, folder: str, names: list[str], batch: ArchivedBatch) -> None:
        paths = self._move(table, folder, self._root / batch.staged_in, names)
        ranges = [[each.topic, each.partition, each.from_offset, each.until_offset] for each in batch.ranges]
        summary = {BATCH: str(batch.number), RANGES: json.dumps(ranges)}

        def append(transaction: Transaction) -> None:
            transaction.set_properties({BATCH: str(batch.number)})
            transaction.add_files(paths, snapshot_properties=summary, check_duplicate_files=False)

        _commit(table, append)

    def _replace_letters(self, names: list[str], batch: ArchivedBatch) -> None:
        """Replace the dead letters of the topics that were decoded again, in one commit."""
        from pyiceberg.expressions import In

        table = self._load(DEAD_LETTERS)
        if table is None or int(table.properties.get(BATCH, -1)) >= batch.number:
            return
        paths = self._move(table, DEAD_LETTERS, self._root / batch.staged_in, names) if names else []

        def replace(transaction: Transaction) -> None:
            transaction.set_properties({BATCH: str(batch.number)})
            transaction.delete(In("topic", batch.retried))
            if paths:
                transaction.add_files(paths, check_duplicate_files=False)

        _commit(table, replace)

    def _move(self, table: Table, folder: str, staging: Location, names: list[str]) -> list[str]:
        """Move staged files to the table's location; return their new places, also of those moved already."""
        places = [f"{table.location()}/{name.removeprefix(f'{folder}/')}" for name in names]
        for name, uri in zip(names, places, strict=True):
            staged, place = staging / name, data_file_location(uri)
            try:
                if isinstance(staged, Path) and isinstance(place, Path):
                    move(staged, place)
                elif staged.exists() or not table.io.new_input(uri).exists():
                    # With the catalog's credentials: those of the archive may be other ones.
                    with table.io.new_output(uri).create(overwrite=True) as output:
                        output.write(staged.read_bytes())
            except FileNotFoundError as fault:
                raise ManifestError(f"{staged} is missing, which has rows of the table {self._id(folder)}") from fault
        make_durable(data_file_location(table.location()), map(data_file_location, places), with_contents=False)
        return places

    def _create(self, folder: str, staged_in: str, name: str) -> Table:
        """Create the table for the columns of a staged file. Raises PipelineError for a type that Iceberg lacks."""
        from pyiceberg.exceptions import TableAlreadyExistsError
        from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform

        sources = {"topic": ("topic", IdentityTransform())}
        if folder == DATA:
            is_hourly = self._description.period is Period.HOUR
            sources["timestamp"] = ("hour", HourTransform()) if is_hourly else ("date", DayTransform())
            names = map(column_name, self._description.fields)
            sources |= {name: (name, IdentityTransform()) for name in names}
        # Iceberg finds out a file's partition by these columns' least and greatest values.
        metrics = {f"write.metadata.metrics.column.{source}": "full" for source in sources}
        place = self._id(folder)
        location = f"file://{self._root / folder}" if self._description.table is None else None
        schema = parquet.read_schema(parquet_source(self._root / staged_in / name))
        self._catalog.create_namespace_if_not_exists(place[:-1])
        try:
            with (
                self._catalog.create_table_transaction(
                    place, schema, location=location, properties=_PROPERTIES | metrics
                ) as transaction,
                transaction.update_spec() as spec,
            ):
                for source, (partition, transform) in sources.items():
                    spec.add_field(source, transform, partition)
        except TableAlreadyExistsError:
            pass
        except (TypeError, ValueError) as fault:
            raise PipelineError(f"Iceberg cannot have a table of these values: {fault}") from fault
        return self._catalog.load_table(place)

    def _load(self, folder: str) -> Table | None:
        from pyiceberg.exceptions import NoSuchTableError

        with suppress(NoSuchTableError):
            return self._catalog.load_table(self._id(folder))
        return None

    def _id(self, folder: str) -> TableId:
        return table_id(self._description, folder)


def _commit(table: Table, change: Callable[[Transaction], None]) -> None:
    """Commit a change to the table, again if another program has changed the table meanwhile."""
    from pyiceberg.exceptions import CommitFailedException

    for attempts_left in reversed(range(ATTEMPTS)):
        try:
            with table.transaction() as transaction:
                change(transaction)
        except CommitFailedException as fault:
            if not attempts_left:
                raise PipelineError(f"{'.'.join(table.name())} is changed by other programs all the time") from fault
            table.refresh()
        else:
            return


def _replace(old: Collection[Any], new: list[str], transaction: Transaction) -> None:
    from pyiceberg.io.pyarrow import parquet_files_to_data_files

    metadata, io = transaction.table_metadata, transaction._table.io
    with transaction.update_snapshot().overwrite() as snapshot:
        for file in old:
            snapshot.delete_data_file(file)
        for file in parquet_files_to_data_files(io, metadata, iter(new)):
            snapshot.append_data_file(file)


def _topic_of(table: Table, file: Any) -> str:
    source = table.schema().find_field("topic").field_id
    for number, field in enumerate(table.specs()[file.spec_id].fields):
        if field.source_id == source:
            return str(file.partition[number])
    raise PipelineError(f"{file.file_path} has rows of more than one topic: only Iceberg can read it")
