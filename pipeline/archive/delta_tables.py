"""An archive's rows in tables of Delta Lake, under `data/` and `dead_letters/`, one commit per batch.

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
from .compaction import SMALL_BYTES, WANTED_BYTES
from .description import ArchiveDescription, Period, Values
from .manifest import DATA, DEAD_LETTERS, Manifest, ManifestError
from .manifest_entry import ArchivedBatch
from .row_table import parquet_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ..jobs.desk import Desk

APPLICATION = "gregor.archive"
"""The tables' `txnAppId`."""
_PARTITION_TYPES = {"topic": "string", "date": "date", "hour": "int"}
_FOREIGN_PROPERTIES = {"delta.enableDeletionVectors": "false", "delta.columnMapping.mode": "none"}
"""The required table properties: with other values the rows differ from those in the table's Parquet files."""


class DeltaTables:
    """The two tables of Delta Lake in an archive; see row_table.RowTable."""

    def __init__(self, description: ArchiveDescription, manifest: Manifest, desk: Desk) -> None:
        """Start Spark. Raises PipelineError without Delta Lake, or if the tables belong to another archive."""
        self._root = manifest.root
        self._staging = manifest.staging
        self._period = description.period
        self._order = "lastOffset" if description.values is Values.BATCHES else "offset"
        self._session = delta_session(desk)
        if self._exists(DATA) and not manifest.next_number and manifest.pending is None:
            raise ManifestError(f"{self._root / DATA} is a table, and no manifest says what it has: use another root")

    def publish(self, batch: ArchivedBatch) -> None:
        """Append a staged batch to the tables, see RowTable.publish."""
        columns = ["topic", "date", *(["hour"] if self._period is Period.HOUR else [])]
        self._append(DATA, columns, batch)
        self._append(DEAD_LETTERS, ["topic"], batch)

    def files(self) -> list[Location]:
        """Return the tables' current files, see RowTable.files."""
        if not self._exists(DATA):
            return []
        self._check_features()
        return [location(uri) for uri in sorted(self._load(DATA).inputFiles())]

    def frame(self, session: SparkSession, names: Collection[str]) -> DataFrame:
        """Return the rows of files as a data frame, see RowTable.frame."""
        return self._load(DATA)

    def compact(self, desk: Desk, manifest: Manifest) -> tuple[int, int, ArchivedBatch | None]:
        """Merge small files, see RowTable.compact. Files that no longer belong to a table remain until VACUUM."""
        self._session.conf.set("spark.databricks.delta.optimize.minFileSize", str(SMALL_BYTES))
        self._session.conf.set("spark.databricks.delta.optimize.maxFileSize", str(WANTED_BYTES))
        found = [self._optimize(folder) for folder in (DATA, DEAD_LETTERS) if self._exists(folder)]
        return sum(removed for removed, _ in found), sum(added for _, added in found), None

    def sweep(self) -> list[Location]:
        """Return no files, see RowTable.sweep: the table itself records its valid files."""
        return []

    def _append(self, folder: str, columns: list[str], batch: ArchivedBatch) -> None:
        paths = [self._staging / name for name in batch.files if name.startswith(f"{folder}/")]
        if not paths:
            return
        rows = parquet_frame(self._session, self._staging / folder, paths)
        for column in columns:
            rows = rows.withColumn(column, rows[column].cast(_PARTITION_TYPES[column]))
        order = self._order if folder == DATA else "offset"
        writer = rows.sortWithinPartitions(*columns, "partition", order).write.format("delta").mode("append")
        once = {"txnAppId": APPLICATION, "txnVersion": str(batch.number)}
        writer.partitionBy(*columns).options(**once).save(str(self._root / folder))

    def _optimize(self, folder: str) -> tuple[int, int]:
        from delta.tables import DeltaTable

        table = DeltaTable.forPath(self._session, str(self._root / folder))
        metrics = table.optimize().executeCompaction().first().metrics
        return metrics.numFilesRemoved, metrics.numFilesAdded

    def _check_features(self) -> None:
        from delta.tables import DeltaTable

        properties = DeltaTable.forPath(self._session, str(self._root / DATA)).detail().first().properties
        for name, expected in _FOREIGN_PROPERTIES.items():
            if properties.get(name, expected) != expected:
                raise PipelineError(f"{self._root / DATA} has {name}={properties[name]}: only Spark can read it then")

    def _exists(self, folder: str) -> bool:
        return (self._root / folder / "_delta_log").is_dir()

    def _load(self, folder: str) -> DataFrame:
        return self._session.read.format("delta").load(str(self._root / folder))
