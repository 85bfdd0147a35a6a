"""The conversion of a table's rows to record batches of format v2, ready to be produced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from ...protocol.records import v2
from ...protocol.records.batching_cy import GrowingBatch, RecordRows, TopicBatches
from ...protocol.records.compression import Codec, compress_pieces
from ...protocol.records.record import Buffer, TimestampType
from ...protocol.topic_partition import AnyTopicPartition
from ..columns.arrow_columns import bytes_rows, fixed_rows, list_rows, scalar
from ..columns.schemas import HEADERS
from ..errors import PipelineError

MICROS = scalar(1000, pa.int64())
BY_KEY = -1
"""The partition of a row that names none."""

Built = tuple[AnyTopicPartition, Buffer]
"""A batch and its partition; the caller sets its offsets and producer."""


class BatchBuilder:
    """A builder that sorts rows by partition into batches of about `batch_bytes` before compression.

    A row goes to its `partition`; without one, to the partition that Kafka's producers choose for its key; without a
    key, to one partition until its batch is full, then to the next.
    """

    def __init__(
        self,
        topic: str | None,
        codec: Codec,
        batch_bytes: int,
        partition_count: Callable[[str], int],
        now_ms: Callable[[], int],
        first_partition: int,
    ) -> None:
        self._topic = topic
        self._codec = codec
        self._batch_bytes = batch_bytes
        self._partition_count = partition_count
        self._now_ms = now_ms
        self._first_partition = first_partition
        self._topics: dict[str, TopicBatches] = {}

    def add(self, rows: pa.RecordBatch) -> Iterator[Built]:
        """Append rows; yield the batches that are full. Raises PipelineError for rows that cannot be produced."""
        for topic, of_topic in self._by_topic(rows):
            if topic not in self._topics:
                count = self._partition_count(topic)
                self._topics[topic] = TopicBatches(count, self._first_partition, self._batch_bytes)
            yield from self._add(topic, self._topics[topic], of_topic)

    def rest(self) -> Iterator[Built]:
        """Yield the batches that are not full."""
        for topic, batches in self._topics.items():
            for partition, batch in enumerate(batches.growing):
                if batch is not None:
                    yield (topic, partition), self._built(batch)
        self._topics.clear()

    def _by_topic(self, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the rows of each topic, in order."""
        if self._topic is not None:
            yield self._topic, rows
            return
        topics = _column(rows, "topic", pa.string())
        names = topics.unique().to_pylist()
        if None in names:
            raise PipelineError("a row without a topic: give the option topic, or a column of that name without nulls")
        for name in names:
            yield name, rows if len(names) == 1 else rows.filter(pc.equal(topics, scalar(name, pa.string())))

    def _add(self, topic: str, batches: TopicBatches, rows: pa.RecordBatch) -> Iterator[Built]:
        _check_partitions(topic, rows, batches.partition_count)
        columns = _record_rows(rows, self._now_ms())
        row = 0
        while row < columns.count:
            try:
                row = batches.fill(columns, row)
            except ValueError as fault:
                raise PipelineError(f"the row for {topic}: {fault}") from fault
            if row < columns.count and (batch := batches.take(batches.full_partition)):
                yield (topic, batches.full_partition), self._built(batch)

    def _built(self, batch: GrowingBatch) -> Buffer:
        if not self._codec:
            return batch.uncompressed()
        return v2.assemble_batch(
            compress_pieces(self._codec, (batch.body(),)),
            record_count=batch.record_count,
            base_offset=0,
            last_offset=batch.record_count - 1,
            attributes=v2.attributes_of(self._codec, TimestampType.CREATE_TIME),
            base_timestamp=batch.base_timestamp,
            max_timestamp=batch.max_timestamp,
        )


def _check_partitions(topic: str, rows: pa.RecordBatch, count: int) -> None:
    """Raise PipelineError for a partition that does not exist."""
    bounds = pc.min_max(_column(rows, "partition", pa.int64())).as_py()
    for partition in (bounds["min"], bounds["max"]):
        if partition is not None and not 0 <= partition < count:
            raise PipelineError(f"a row for {topic}-{partition}, but the topic has {count} partitions")


def _record_rows(rows: pa.RecordBatch, now_ms: int) -> RecordRows:
    """Return the columns of a record; missing ones are null, missing timestamps `now_ms`."""
    column = partial(_column, rows)
    millis = _filled(pc.divide(column("timestamp", pa.int64()), MICROS), now_ms)
    partitions = _filled(column("partition", pa.int32()), BY_KEY)
    headers = column("headers", HEADERS)
    pairs = headers.values
    return RecordRows(
        fixed_rows(millis),
        fixed_rows(partitions),
        bytes_rows(column("key", pa.binary())),
        bytes_rows(column("value", pa.binary())),
        list_rows(headers),
        bytes_rows(pairs.field("key")),
        bytes_rows(pairs.field("value")),
    )


def _filled(column: pa.Array, value: int) -> pa.Array:
    return pc.fill_null(column, scalar(value, column.type)) if column.null_count else column


def _column(rows: pa.RecordBatch, name: str, kind: pa.DataType) -> pa.Array:
    index = rows.schema.get_field_index(name)
    if index < 0:
        return pa.nulls(len(rows), kind)
    column = rows.column(index)
    return column if column.type == kind else column.cast(kind)
