"""Rows of a table in, record batches of format v2 out, ready to be produced."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..client.partitioner import partition_for_key
from ..protocol.records import v2
from ..protocol.records.client_records_cy import encode_record
from ..protocol.records.compression import Codec, compress_pieces
from ..protocol.records.record import TimestampType
from .errors import PipelineError
from .offset_options import Partition

RECORD_OVERHEAD = 30
"""More than a record takes beside its key, value and headers."""

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(slots=True)
class OpenBatch:
    """Records of one partition that will be a batch."""

    records: list[bytes] = field(default_factory=list)
    size_bytes: int = v2.HEADER_SIZE
    base_timestamp: int = 0
    max_timestamp: int = 0

    def append(self, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        """Add a record of that time (ms)."""
        if not self.records:
            self.base_timestamp = self.max_timestamp = timestamp
        elif timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        record = encode_record(timestamp - self.base_timestamp, len(self.records), key, value, headers)
        self.records.append(record)
        self.size_bytes += len(record)

    def build(self, codec: Codec) -> bytes:
        """The batch's bytes; its offsets and producer are for others to fill in."""
        return v2.assemble_batch(
            compress_pieces(codec, (b"".join(self.records),)) if codec else b"".join(self.records),
            record_count=len(self.records),
            base_offset=0,
            last_offset=len(self.records) - 1,
            attributes=v2.attributes_of(codec, TimestampType.CREATE_TIME),
            base_timestamp=self.base_timestamp,
            max_timestamp=self.max_timestamp,
        )


class BatchBuilder:
    """Sorts rows by partition into batches of about `batch_bytes` before compression.

    A row goes to its `partition`; without one, where Kafka's producers put its key; without a key, to one partition
    for as long as a batch lasts, then to the next.
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
        self._keyless_partition = first_partition
        self._open: dict[Partition, OpenBatch] = {}

    def add(self, rows: pa.RecordBatch) -> Iterator[tuple[Partition, bytes]]:
        """Take rows in; yields the batches that have become full. Raises PipelineError for rows that cannot go."""
        now_ms = self._now_ms()
        for topic, partition, timestamp, key, value, headers in _rows_of(rows, self._topic):
            place = self._place(topic, partition, key)
            batch = self._open.get(place)
            if batch is None:
                batch = self._open[place] = OpenBatch()
            size = RECORD_OVERHEAD + len(key or b"") + len(value or b"")
            if batch.records and batch.size_bytes + size > self._batch_bytes:
                yield place, batch.build(self._codec)
                batch = self._open[place] = OpenBatch()
                if partition is None and key is None:
                    self._keyless_partition += 1
            batch.append(now_ms if timestamp is None else timestamp, key, value, headers)

    def rest(self) -> Iterator[tuple[Partition, bytes]]:
        """What is not full."""
        for place, batch in self._open.items():
            if batch.records:
                yield place, batch.build(self._codec)
        self._open.clear()

    def _place(self, topic: str | None, partition: int | None, key: bytes | None) -> Partition:
        if topic is None:
            raise PipelineError("a row without a topic: give the option topic, or a column of that name without nulls")
        count = self._partition_count(topic)
        if partition is None:
            chosen = self._keyless_partition % count if key is None else partition_for_key(key, count)
            return topic, chosen
        if not 0 <= partition < count:
            raise PipelineError(f"a row for {topic}-{partition}, but the topic has {count} partitions")
        return topic, partition


_Row = tuple[str | None, int | None, int | None, bytes | None, bytes | None, Headers]


def _rows_of(rows: pa.RecordBatch, topic: str | None) -> Iterator[_Row]:
    """Topic, partition, time stamp (ms), key, value and headers of each row; columns that are not there are null."""

    def column(name: str) -> pa.Array:
        index = rows.schema.get_field_index(name)
        return rows.column(index) if index >= 0 else pa.nulls(len(rows))

    def contents(name: str) -> pa.Array:
        return column(name).cast(pa.binary())

    topics = column("topic").to_pylist() if topic is None else [topic] * len(rows)
    micros = column("timestamp").cast(pa.int64())
    headers = column("headers")
    return zip(
        topics,
        column("partition").to_pylist(),
        pc.divide(micros, 1000).to_pylist(),
        contents("key").to_pylist(),
        contents("value").to_pylist(),
        [()] * len(rows) if headers.null_count == len(rows) else map(_pairs, headers.to_pylist()),
        strict=True,
    )


def _pairs(headers: list[dict[str, Any]] | None) -> Headers:
    return [(header["key"], header["value"]) for header in headers or ()]
