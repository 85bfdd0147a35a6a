"""Where an archive's rows are: Parquet files that the manifest names, or tables of Delta Lake.

Whoever reads an archive reads Parquet files either way, and a RowTable says which.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from .compaction import merge_small_files
from .durable_files import sync_folders
from .manifest import DATA, DEAD_LETTERS, Manifest, ManifestError
from .manifest_entry import ArchivedBatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ..jobs.desk import Desk

_BATCH_FILE = re.compile(r"(\d+)-.+")


class RowTable(Protocol):
    """What an archive needs of the place where its rows are."""

    def publish(self, batch: ArchivedBatch) -> None:
        """Put a staged batch's rows in their place; done again, that changes nothing. Raises PipelineError, OSError."""

    def files(self) -> list[Path]:
        """The Parquet files below the root that have all rows that count, and perhaps some that are about to.

        Raises PipelineError.
        """

    def frame(self, session: SparkSession, names: Collection[str]) -> DataFrame:
        """Those rows of these files (relative to the root) as Spark sees them, with `topic` among the columns."""

    def compact(self, desk: Desk, manifest: Manifest) -> tuple[int, int, ArchivedBatch | None]:
        """Make few files of many small ones: how many became how many, and a batch to commit if that is to count.

        Raises PipelineError, OSError.
        """

    def sweep(self) -> list[Path]:
        """Remove files that do not count any more; returns them. Raises OSError."""


class ParquetFiles:
    """Files below `data/` and `dead_letters/`.

    They are moved there when it is decided that they will count, so whoever reads the folder without the manifest finds
    no row that is taken back; of a batch whose writer was killed just then he may find a part.
    """

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._root = manifest.root

    def publish(self, batch: ArchivedBatch) -> None:
        """See RowTable."""
        for name in batch.files:
            staged, place = self._manifest.staging / name, self._root / name
            if staged.exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                staged.rename(place)
            elif not place.exists():
                raise ManifestError(f"{staged} is gone, and batch {batch.number} was to have its rows")
        sync_folders(self._root, (self._root / name for name in batch.files))

    def files(self) -> list[Path]:
        """See RowTable."""
        return self._manifest.files()

    def frame(self, session: SparkSession, names: Collection[str]) -> DataFrame:
        """See RowTable."""
        return parquet_frame(session, self._root / DATA, [self._root / name for name in sorted(names)])

    def compact(self, desk: Desk, manifest: Manifest) -> tuple[int, int, ArchivedBatch | None]:
        """See RowTable."""
        batch = merge_small_files(desk, manifest)
        return (len(batch.replaces), len(batch.files), batch) if batch else (0, 0, None)

    def sweep(self) -> list[Path]:
        """See RowTable."""
        known = {self._root / name for name in self._manifest.state.names}
        removed = []
        for folder in (self._root / DATA, self._root / DEAD_LETTERS):
            for path in sorted(folder.rglob("*")):
                if path.is_file() and path not in known and _BATCH_FILE.fullmatch(path.name):
                    path.unlink()
                    removed.append(path)
        return removed


def parquet_frame(session: SparkSession, base: Path, paths: Collection[Path]) -> DataFrame:
    """Files as one table, with columns for the folders between `base` and them, as text."""
    # A topic may be called 2020, and shall not become a number.
    session.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
    return session.read.option("basePath", str(base)).parquet(*map(str, paths))
