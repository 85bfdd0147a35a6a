"""An archive's rows in tables of Delta Lake, one commit per batch: below `data/` and `dead_letters/`, or in a catalog.

Tasks stage Parquet files as for any archive, and Spark appends them to the table. The batch's number is the commit's
`txnVersion`: a batch that is appended again, because its writer was killed before the manifest counted it, changes
nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from ..delta_lake import delta_session
from ..errors import PipelineError
from ..filesystems.locations import Location, location
from .avro_types import AvroColumn
from .compaction import SMALL_BYTES, WANTED_BYTES
from .description import ArchiveDescription, Period, Values
from .field_folders import column_name
from .manifest import DATA, DEAD_LETTERS, Manifest, ManifestError
from .manifest_entry import ArchivedBatch
from .row_table import TableFile, parquet_frame
from .schema_evolution import Added, Renamed, Widened, changes

if TYPE_CHECKING:
    import pyarrow as pa
    from delta.tables import DeltaTable
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

    from ..jobs.desk import Desk

APPLICATION = "gregor.archive"
"""The tables' `txnAppId`."""
_PARTITION_TYPES = {"topic": "string", "date": "date", "hour": "int"}
_SAFE_HOURS = 168.0
"""The retention below which VACUUM has to be told that no other writer is active."""


class DeltaTables:
    """The two tables of Delta Lake in an archive; see row_table.RowTable."""

    def __init__(self, description: ArchiveDescription, manifest: Manifest, desk: Desk) -> None:
        """Start Spark. Raises PipelineError without Delta Lake, or if the tables belong to another archive."""
        self._manifest = manifest
        self._root = manifest.root
        self._description = description
        self._order = "lastOffset" if description.values is Values.BATCHES else "offset"
        self._session = delta_session(desk, in_catalog=description.table is not None)
        if self._exists(DATA) and not manifest.next_number and manifest.pending is None:
            raise ManifestError(f"{self._place(DATA)} is a table, and no manifest says what it has: use another root")

    def publish(self, batch: ArchivedBatch) -> None:
        """Append a staged batch to the tables, see RowTable.publish."""
        hour = ["hour"] if self._description.period is Period.HOUR else []
        self._append(DATA, ["topic", "date", *hour], self._description.fields, batch)
        if batch.retried:
            self._replace_letters(batch)
        else:
            self._append(DEAD_LETTERS, ["topic"], (), batch)

    def files(self, folder: str = DATA) -> list[TableFile]:
        """Return the table's current files, see RowTable.files."""
        if not self._exists(folder):
            return []
        self._check_features(folder)
        rows = self._load(folder)
        return [
            TableFile(location(uri), topic)
            for topic in sorted({topic for topic, _ in self._manifest.state.spans})
            for uri in sorted(rows.where(rows["topic"] == topic).inputFiles())
        ]

    def frame(self, session: SparkSession, names: Collection[str]) -> DataFrame:
        """Return the rows of files as a data frame, see RowTable.frame."""
        return self._load(DATA)

    def evolve(self, wanted: pa.DataType, column: AvroColumn | None) -> None:
        """Change the table's schema, see RowTable.evolve.

        A rename sets the table's property `delta.columnMapping.mode`, and a wider type `delta.enableTypeWidening`,
        which older readers of Delta Lake refuse. New columns are added by the first append that has them.
        """
        from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type

        if not self._exists(DATA):
            return
        table = f"ALTER TABLE {self._sql_name(DATA)}"
        for change in changes(to_arrow_type(self._load(DATA).schema["value"].dataType), wanted, column):
            path = ".".join(_quoted(name) for name in change.path)
            match change:
                case Renamed():
                    self._session.sql(f"{table} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
                    self._session.sql(f"{table} RENAME COLUMN {path} TO {_quoted(change.name)}")
                case Widened():
                    self._session.sql(f"{table} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
                    wider = from_arrow_type(change.arrow_type).simpleString()
                    self._session.sql(f"{table} ALTER COLUMN {path} TYPE {wider}")
                case Added():
                    pass

    def compact(self, desk: Desk, manifest: Manifest, kept_hours: float) -> tuple[int, int, ArchivedBatch | None]:
        """Merge small files with OPTIMIZE and remove old ones with VACUUM, see RowTable.compact."""
        settings = self._session.conf
        settings.set("spark.databricks.delta.optimize.minFileSize", str(SMALL_BYTES))
        settings.set("spark.databricks.delta.optimize.maxFileSize", str(WANTED_BYTES))
        settings.set("spark.databricks.delta.retentionDurationCheck.enabled", str(kept_hours >= _SAFE_HOURS).lower())
        removed = added = 0
        for folder in (DATA, DEAD_LETTERS):
            if self._exists(folder):
                table = self._table(folder)
                metrics = table.optimize().executeCompaction().first().metrics
                removed, added = removed + metrics.numFilesRemoved, added + metrics.numFilesAdded
                table.vacuum(kept_hours)
        return removed, added, None

    def sweep(self) -> list[Location]:
        """Return no files, see RowTable.sweep: the table itself records its valid files."""
        return []

    def _append(self, folder: str, columns: list[str], fields: Collection[str], batch: ArchivedBatch) -> None:
        staging = self._root / batch.staged_in
        paths = [staging / name for name in batch.files if name.startswith(f"{folder}/")]
        if not paths:
            return
        rows = parquet_frame(self._session, staging / folder, paths)
        for column in columns:
            rows = rows.withColumn(column, rows[column].cast(_PARTITION_TYPES[column]))
        for field in fields:
            rows = rows.withColumn(
                column_name(field), rows[".".join(_quoted(part) for part in f"value.{field}".split("."))]
            )
        partitions = [*columns, *map(column_name, fields)]
        order = self._order if folder == DATA else "offset"
        writer = rows.sortWithinPartitions(*partitions, "partition", order).write.format("delta").mode("append")
        once = {"txnAppId": APPLICATION, "txnVersion": str(batch.number), "mergeSchema": "true"}
        self._save(folder, writer.partitionBy(*partitions).options(**once))

    def _replace_letters(self, batch: ArchivedBatch) -> None:
        """Replace the dead letters of the topics that were decoded again, in one commit."""
        from pyspark.sql import functions as f

        staging = self._root / batch.staged_in
        paths = [staging / name for name in batch.files if name.startswith(f"{DEAD_LETTERS}/")]
        if paths:
            rows = parquet_frame(self._session, staging / DEAD_LETTERS, paths)
        else:
            rows = self._load(DEAD_LETTERS).where(f.lit(False))
        topics = ", ".join("'" + topic + "'" for topic in batch.retried)
        writer = rows.withColumn("topic", rows["topic"].cast("string")).write.format("delta").mode("overwrite")
        once = {"txnAppId": APPLICATION, "txnVersion": str(batch.number), "replaceWhere": f"topic IN ({topics})"}
        self._save(DEAD_LETTERS, writer.partitionBy("topic").options(**once))

    def _save(self, folder: str, writer: DataFrameWriter) -> None:
        if self._description.table is None:
            writer.save(self._place(folder))
        else:
            writer.saveAsTable(self._sql_name(folder))

    def _check_features(self, folder: str) -> None:
        """Raise PipelineError if the rows differ from those in the table's Parquet files."""
        properties = self._table(folder).detail().first().properties
        expected = {"delta.enableDeletionVectors": "false"}
        if self._description.value_type in ("binary", "string"):
            # Other values are never read from files: their bytes are not there.
            expected["delta.columnMapping.mode"] = "none"
        for name, wanted in expected.items():
            if properties.get(name, wanted) != wanted:
                raise PipelineError(f"{self._place(folder)} has {name}={properties[name]}: only Spark can read it then")

    def _place(self, folder: str) -> str:
        """Return the table's name in the catalog, or its path."""
        if self._description.table is None:
            return str(self._root / folder)
        return self._description.table if folder == DATA else f"{self._description.table}_{folder}"

    def _sql_name(self, folder: str) -> str:
        place = self._place(folder)
        if self._description.table is None:
            return f"delta.{_quoted(place)}"
        return ".".join(_quoted(name) for name in place.split("."))

    def _exists(self, folder: str) -> bool:
        if self._description.table is None:
            return (self._root / folder / "_delta_log").is_dir()
        return bool(self._session.catalog.tableExists(self._sql_name(folder)))

    def _table(self, folder: str) -> DeltaTable:
        from delta.tables import DeltaTable

        if self._description.table is None:
            return DeltaTable.forPath(self._session, self._place(folder))
        return DeltaTable.forName(self._session, self._sql_name(folder))

    def _load(self, folder: str) -> DataFrame:
        if self._description.table is None:
            return self._session.read.format("delta").load(self._place(folder))
        return self._session.table(self._sql_name(folder))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
