"""An archive's files in a store as a data frame, read by tasks with Arrow: Spark needs no jars for the store."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import parquet

from ..filesystems.files import parquet_source
from ..filesystems.locations import Location
from .field_folders import NO_VALUE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def store_frame(session: SparkSession, root: Location, base: str, names: Collection[str]) -> DataFrame:
    """Return files (relative to `root`) as one data frame, with text columns for their folders below `base`."""
    from pyspark.sql.pandas.types import from_arrow_schema

    ordered = sorted(names)
    folders = _folders(ordered[0], base)
    stored = parquet.read_schema(parquet_source(root / ordered[0]))
    schema = pa.schema([*stored, *(pa.field(name, pa.string()) for name in folders)])
    listed = session.createDataFrame(pa.table({"name": ordered}))
    spread = listed.repartition(len(ordered))
    return spread.mapInArrow(_Reader(root, base, schema), from_arrow_schema(schema))


class _Reader:
    """The function of a task, which reads files."""

    def __init__(self, root: Location, base: str, schema: pa.Schema) -> None:
        self._root = root
        self._base = base
        self._schema = schema

    def __call__(self, names: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the files with these names."""
        for name in (name for batch in names for name in batch["name"].to_pylist()):
            folders = _folders(name, self._base)
            for rows in parquet.ParquetFile(parquet_source(self._root / name)).iter_batches():
                columns = [
                    pa.array([folders[field.name]] * rows.num_rows, pa.string())
                    if field.name in folders
                    else rows[field.name]
                    for field in self._schema
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _folders(name: str, base: str) -> dict[str, str | None]:
    """Return the columns in a file's path: topic=demo, date=2020-01-01."""
    pairs = (part.partition("=") for part in PurePosixPath(name).relative_to(base).parent.parts)
    return {column: None if value == NO_VALUE else value for column, _, value in pairs}
