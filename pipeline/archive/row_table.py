"""The table of an archive's rows: Parquet files listed in the manifest, or tables of Delta Lake or Iceberg.

Readers of an archive read Parquet files in all cases; a RowTable lists them.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ..filesystems.files import files_below, make_durable, move
from ..filesystems.locations import Location, name_below
from ..filesystems.remote_path import RemotePath
from .compaction import merge_small_files
from .manifest import DATA, DEAD_LETTERS, Manifest, ManifestError
from .manifest_entry import ArchivedBatch
from .store_rows import store_frame

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from ..jobs.desk import Desk
    from .avro_types import AvroColumn

_TOPIC_FOLDER = "topic="
_BATCH_FILE = re.compile(r"(\d+)-.+")


class TableFile(NamedTuple):
    """A Parquet file of a table, and the topic of all of its rows."""

    path: Location
    topic: str


class RowTable(Protocol):
    """The operations of an archive on the table of its rows."""

    def publish(self, batch: ArchivedBatch) -> None:
        """Move a staged batch's rows into the table; a repeated call changes nothing. Raises PipelineError, OSError."""

    def files(self, folder: str = DATA) -> list[TableFile]:
        """Return the Parquet files of rows or of dead letters: all valid ones, and perhaps ones about to become valid.

        Raises PipelineError.
        """

    def frame(self, session: SparkSession, names: Collection[str]) -> DataFrame:
        """Return the valid rows of these files (relative to the root) as a data frame, with a column `topic`."""

    def evolve(self, wanted: pa.DataType, column: AvroColumn | None) -> None:
        """Change the table's column `value` so that it holds values of this type too; a repeated call is allowed.

        `column` is that of an Avro schema, which may rename fields. Raises ManifestError if the table cannot do that.
        """

    def compact(self, desk: Desk, manifest: Manifest, kept_hours: float) -> tuple[int, int, ArchivedBatch | None]:
        """Merge small files; return the numbers of files before and after, and a batch to commit if one is needed.

        A table that has versions forgets those older than `kept_hours`, and the files of those alone. Raises
        PipelineError, OSError.
        """

    def sweep(self) -> list[Location]:
        """Remove files that are not valid any more; return them. Raises OSError."""


class ParquetFiles:
    """The files below `data/` and `dead_letters/`.

    Files are moved there after their batch is final, so a reader of the folder without the manifest finds no row
    that is withdrawn later; of a batch whose writer was killed at that moment such a reader may find a part.
    """

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._root = manifest.root

    def publish(self, batch: ArchivedBatch) -> None:
        """Move a staged batch's files, see RowTable.publish."""
        for name in batch.files:
            staged = self._root / batch.staged_in / name
            try:
                move(staged, self._root / name)
            except FileNotFoundError:
                raise ManifestError(f"{staged} is missing, which has the rows of batch {batch.number}") from None
        make_durable(self._root, (self._root / name for name in batch.files), with_contents=False)

    def files(self, folder: str = DATA) -> list[TableFile]:
        """Return the valid files, see RowTable.files."""
        files = self._manifest.files(folder)
        return [TableFile(path, topic_of(name_below(path, self._root))) for path in files]

    def frame(self, session: SparkSession, names: Collection[str]) -> DataFrame:
        """Return the rows of files as a data frame, see RowTable.frame."""
        if isinstance(self._root, RemotePath):
            return store_frame(session, self._root, DATA, names)
        return parquet_frame(session, self._root / DATA, [self._root / name for name in sorted(names)])

    def evolve(self, wanted: pa.DataType, column: AvroColumn | None) -> None:
        """Refuse the change, see RowTable.evolve: each file has the types of its time."""
        raise ManifestError(
            f"{self._root}: only archives in tables can have another schema later; name the version that this one has "
            "(--subject NAME:VERSION), or use --format delta with another root"
        )

    def compact(self, desk: Desk, manifest: Manifest, kept_hours: float) -> tuple[int, int, ArchivedBatch | None]:
        """Merge small files, see RowTable.compact."""
        batch = merge_small_files(desk, manifest)
        return (len(batch.replaces), len(batch.files), batch) if batch else (0, 0, None)

    def sweep(self) -> list[Location]:
        """Remove invalid files, see RowTable.sweep."""
        known = {self._root / name for name in self._manifest.state.names}
        removed = []
        for folder in (self._root / DATA, self._root / DEAD_LETTERS):
            for path in files_below(folder):
                found = _BATCH_FILE.fullmatch(path.name)
                # Files of later batches belong to a writer that has taken the archive over.
                if found and path not in known and int(found[1]) < self._manifest.next_number:
                    path.unlink(missing_ok=True)
                    removed.append(path)
        return removed


def topic_of(name: str) -> str:
    """Return the topic in the name of a file of data or of dead letters."""
    return name.split("/", 2)[1].removeprefix(_TOPIC_FOLDER)


def parquet_frame(session: SparkSession, base: Location, paths: Collection[Location]) -> DataFrame:
    """Return files as one data frame, with text columns for the folders between `base` and them."""
    # A topic named 2020 must not become a number.
    session.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
    return session.read.option("basePath", str(base)).parquet(*map(str, paths))
