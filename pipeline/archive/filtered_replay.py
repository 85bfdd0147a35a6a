"""The replay of rows that a condition in Spark SQL selects: Spark reads, filters and sorts, tasks write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ...protocol.topic_partition import AnyTopicPartition
from ..errors import OptionError
from ..sink.exact_copy import CopyTarget
from .reading import ArchivedPartition
from .replaying import ReplayOptions, ReplayReceipt, Rows, replay
from .row_table import RowTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECEIPT = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("records", pa.int64()),
        ("beganAt", pa.int64()),
        ("sizeBytes", pa.int64()),
    ]
)
RECEIPT_FOR_SPARK = "topic STRING, partition INT, records BIGINT, beganAt BIGINT, sizeBytes BIGINT"


def replay_where(
    session: SparkSession,
    table: RowTable,
    work: Sequence[tuple[ArchivedPartition, CopyTarget]],
    options: ReplayOptions,
    condition: str,
) -> list[ReplayReceipt]:
    """Replay the rows that fulfil the condition, as `replay` does. Raises OptionError for a condition that Spark
    rejects.

    A partition without any such row has no task, and so no progress of its own: each run reads it again.
    """
    from pyspark.errors import AnalysisException, ParseException

    names = {span.name for source, _ in work for span in source.files}
    if not names:
        return []
    archived = table.frame(session, names)
    try:
        chosen = archived.where(archived["topic"].isin({source.topic for source, _ in work})).where(condition)
    except (AnalysisException, ParseException) as fault:
        raise OptionError(f"--where {condition!r}: {str(fault).splitlines()[0]}") from fault
    in_order = chosen.repartition(len(work), "topic", "partition").sortWithinPartitions("topic", "partition", "offset")
    task = _Task({(source.topic, source.partition): (target, source.until_offset) for source, target in work}, options)
    receipts = in_order.mapInArrow(task, RECEIPT_FOR_SPARK).collect()
    return sorted(
        (ReplayReceipt((row.topic, row.partition), row.records, row.beganAt, row.sizeBytes) for row in receipts),
        key=lambda receipt: receipt.place,
    )


class _Task:
    """The replay of the partitions of one Spark task, one after the other."""

    def __init__(self, targets: dict[AnyTopicPartition, tuple[CopyTarget, int]], options: ReplayOptions) -> None:
        self._targets = targets
        self._options = options

    def __call__(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Replay the partitions in the rows; yield a row of RECEIPT for each."""
        for place, pieces in groupby(_pieces(rows), key=itemgetter(0)):
            if place not in self._targets:
                # A row of a batch that is not valid yet.
                continue
            target, until_offset = self._targets[place]
            tables = partial(_tables, (piece for _, piece in pieces), until_offset)
            # Spark passes the rows only once, so a second attempt needs another task.
            receipt = replay(target, self._options, tables, attempts=1)
            told = dict(
                zip(RECEIPT.names, (*receipt.place, receipt.records, receipt.began_at, receipt.size_bytes), strict=True)
            )
            yield pa.RecordBatch.from_pylist([told], RECEIPT)


def _pieces(rows: Iterator[pa.RecordBatch]) -> Iterator[tuple[AnyTopicPartition, pa.RecordBatch]]:
    """Yield slices of rows of one partition each; the rows are in order."""
    for batch in rows:
        start = 0
        while start < batch.num_rows:
            place = (batch["topic"][start].as_py(), batch["partition"][start].as_py())
            is_there = pc.and_(pc.equal(batch["topic"], place[0]), pc.equal(batch["partition"], place[1]))
            end = start + (pc.sum(is_there.slice(start)).as_py() or 0)
            yield place, batch.slice(start, end - start)
            start = end


def _tables(pieces: Iterator[pa.RecordBatch], until_offset: int, from_offset: int) -> Rows:
    for piece in pieces:
        table = pa.Table.from_batches([piece]).filter(pc.greater_equal(piece["offset"], from_offset))
        if table.num_rows:
            yield table, table["offset"][-1].as_py() + 1
    if from_offset < until_offset:
        yield pa.table({}), until_offset
