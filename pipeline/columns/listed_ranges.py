"""The task that reads nothing: of `mode=ranges`, whose rows the driver has, and of a read without ranges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition


@dataclass(frozen=True)
class ListedRanges(InputPartition):
    """Rows with the columns of `schemas.RANGES`, or none."""

    rows: tuple[dict[str, Any], ...]

    def batch(self, schema: pa.Schema) -> pa.RecordBatch:
        """Return the rows with the columns of the requested mode; missing columns are null."""
        return pa.RecordBatch.from_pylist(list(self.rows), schema)
