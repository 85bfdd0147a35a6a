"""The conversion of stored batches to Arrow batches of `mode=records`: the kernel's columns with Arrow's names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from ...protocol.errors import BrokerError
from ...protocol.records import v2
from ...protocol.records.batches import BatchView, complete_batch_at, inner_base_offset, inner_message_set, iter_batches
from ...protocol.records.columns_cy import RecordColumns, survey_messages
from ...protocol.records.compression import decompress
from ...protocol.records.kernel_cy import Stop
from ...protocol.records.record import TimestampType
from ..errors import DamagedLogError, reason
from .arrow_columns import BytesStore, FixedColumn, codec_names, constant
from .column_memory import ColumnMemory
from .schemas import HEADERS, RECORDS, TIMESTAMP, Mode, arrow_schema

LEAST_RECORD_BYTES = 7
"""The size of an empty v2 record."""
LEAST_MESSAGE_BYTES = 26
"""The size of an empty v0 message."""
LEAST_HEADER_BYTES = 2
CHUNK_BYTES = 4 << 20
"""The approximate stored bytes of one Arrow batch, if `batch_rows` does not end it before."""

_FIXED_TYPES = (pa.int64(), pa.int64(), pa.int32(), pa.int32(), pa.int32(), pa.int64())
_HEADERS_AT = RECORDS.get_field_index("headers")

ANY_TIME = -(2**63)

BatchFilter = Callable[[BatchView], bool]
"""A filter that is called for each batch in turn and returns whether its records are left out."""


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """The requested records. `end_offset` is exclusive; batches older than `least_timestamp` (ms) are left out.

    With `is_exact` every batch must have some of these offsets: a batch without any is damaged, since the CRC does
    not cover the offset of a batch.
    """

    first_offset: int = 0
    end_offset: int = 2**63 - 1
    least_timestamp: int = ANY_TIME
    batch_rows: int = 10_000
    checks_crc: bool = True
    with_values: bool = True
    with_headers: bool = True
    is_exact: bool = False


class RecordBatches:
    """A converter of one partition's stored batches to Arrow batches.

    Converters of pieces that follow each other share a `memory`.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        options: RecordOptions,
        hides_batch: BatchFilter | None = None,
        memory: ColumnMemory | None = None,
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._options = options
        self._hides_batch = hides_batch
        self._memory = memory or ColumnMemory()
        self._schema = arrow_schema(Mode.RECORDS, with_values=options.with_values, with_headers=options.with_headers)
        self._inflated: tuple[int, bytes] = (-1, b"")
        self._next_offset = 0
        self.position = 0
        """The position after the last complete batch when a `read` has ended."""

    def read(self, stored: memoryview, position: int = 0, end: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the records of the complete batches in `stored`, up to a batch that `end` truncates: see `position`
        then.

        The Arrow batches share no memory with `stored`. Raises DamagedLogError.
        """
        self.position = position
        self._inflated = (-1, b"")
        for start, stop in self._shown_stretches(stored, position, len(stored) if end is None else end):
            self.position = start
            yield from self._read_stretch(stored, stop)

    def _shown_stretches(self, stored: memoryview, position: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges of positions without hidden batches."""
        if self._hides_batch is None:
            yield position, end
            return
        start = position
        for batch in iter_batches(stored[:end], position):
            if self._hides_batch(batch):
                if start < batch.position:
                    yield start, batch.position
                self.position = start = batch.end
        if start < end:
            yield start, end

    def _read_stretch(self, stored: memoryview, end: int) -> Iterator[pa.RecordBatch]:
        stop = Stop.OUT_IS_FULL
        while stop != Stop.AT_END and self.position < end:
            columns = self._columns(self._options.batch_rows, min(CHUNK_BYTES, end - self.position))
            stop = self._fill(columns.kernel, stored, end)
            if stop == Stop.OUT_IS_FULL and not columns.kernel.rows:
                columns = self._columns(*self._size_of_next(stored))
                stop = self._fill(columns.kernel, stored, end)
                if stop == Stop.OUT_IS_FULL and not columns.kernel.rows:
                    raise self._damage(stored, "a record count that is too large for its bytes")
            if columns.kernel.rows:
                yield columns.record_batch(self._topic, self._partition, self._schema)

    def _columns(self, rows: int, size_bytes: int) -> _Columns:
        self._memory.begin_batch()
        return _Columns(self._options, rows, size_bytes, self._next_offset, self._memory)

    def _fill(self, kernel: RecordColumns, stored: memoryview, end: int) -> Stop:
        """Fill columns; AT_END if no complete batch is left, OUT_IS_FULL if the next batch does not fit any more."""
        while True:
            self.position = kernel.fill(stored, self.position, end)
            self._next_offset = kernel.next_offset
            if kernel.stop == Stop.NEEDS_CODEC:
                batch = complete_batch_at(stored, self.position)
                if self._add_compressed(kernel, batch):
                    self.position = batch.end
                    self._next_offset = kernel.next_offset
                    continue
            if kernel.stop in (Stop.AT_END, Stop.OUT_IS_FULL):
                return Stop(kernel.stop)
            is_timestamp = kernel.stop == Stop.BAD_TIMESTAMP
            raise self._damage(stored, "a timestamp out of range" if is_timestamp else "records that break the format")

    def _add_compressed(self, kernel: RecordColumns, batch: BatchView) -> bool:
        inflated = memoryview(self._inflate(batch))
        if batch.magic == v2.MAGIC:
            return bool(kernel.add_records(memoryview(batch.buffer), batch.position, inflated))
        count, last_inner_offset = survey_messages(inflated)
        if batch.is_numbered_by_index:
            base_offset = batch.last_offset - count + 1
        else:
            try:
                base_offset = inner_base_offset(batch, last_inner_offset=last_inner_offset)
            except BrokerError as fault:
                raise DamagedLogError(self._topic, self._partition, self._place, reason(fault)) from fault
        return bool(
            kernel.add_messages(
                inflated,
                base_offset,
                batch.is_numbered_by_index,
                batch.max_timestamp,
                batch.timestamp_type is TimestampType.LOG_APPEND_TIME,
                int(batch.codec),
            )
        )

    def _inflate(self, batch: BatchView) -> bytes:
        """Return the decompressed batch; it is cached, as a batch that did not fit is read again."""
        position, body = self._inflated
        if position != batch.position:
            try:
                if batch.magic == v2.MAGIC:
                    body = decompress(batch.codec, batch.view[v2.RECORDS_AT :])
                else:
                    body = inner_message_set(batch)
            except BrokerError as fault:
                raise DamagedLogError(self._topic, self._partition, self._place, reason(fault)) from fault
            self._inflated = (batch.position, body)
        return body

    def _size_of_next(self, stored: memoryview) -> tuple[int, int]:
        """Return the most rows and bytes of the batch at `position`, which was too large for the usual columns."""
        batch = complete_batch_at(stored, self.position)
        size_bytes = len(self._inflate(batch)) if batch.is_compressed else batch.size_bytes
        if batch.magic == v2.MAGIC:
            return min(batch.record_count or 0, size_bytes // LEAST_RECORD_BYTES), size_bytes
        return max(1, size_bytes // LEAST_MESSAGE_BYTES), size_bytes

    def _damage(self, stored: memoryview, problem: str) -> DamagedLogError:
        """Return the error for the batch at `position`."""
        try:
            batch = complete_batch_at(stored, self.position)
        except BrokerError as fault:
            return DamagedLogError(self._topic, self._partition, self._place, reason(fault))
        if not batch.crc_is_valid:
            problem = "a CRC that does not fit its bytes"
        elif batch.last_offset < self._next_offset:
            problem = f"offset {batch.last_offset} comes again, or too late"
        elif self._options.is_exact and batch.last_offset >= self._options.end_offset:
            problem = f"offset {batch.last_offset} where others must be"
        return DamagedLogError(self._topic, self._partition, self._place, problem)

    @property
    def _place(self) -> int:
        """The first offset that was not read: the offset in the batch itself may be the damaged part."""
        return max(self._next_offset, self._options.first_offset)


class _Columns:
    """Memory for one Arrow batch, and the kernel that fills it."""

    def __init__(
        self, options: RecordOptions, rows: int, size_bytes: int, next_offset: int, memory: ColumnMemory
    ) -> None:
        self._fixed = tuple(FixedColumn(arrow_type, rows, memory) for arrow_type in _FIXED_TYPES)
        self._header_ends = FixedColumn(pa.int32(), rows + 1, memory)
        self._header_valid = FixedColumn(pa.uint8(), (rows + 7) // 8, memory)
        self._with_headers = options.with_headers
        self._stores: tuple[BytesStore, ...] = ()
        if options.with_values:
            headers = size_bytes // LEAST_HEADER_BYTES
            self._stores = tuple(BytesStore(count, size_bytes, memory) for count in (rows, rows, headers, headers))
        self.kernel = RecordColumns(
            tuple(column.view for column in self._fixed),
            tuple(store.column for store in self._stores),
            self._header_ends.view,
            self._header_valid.view,
            size_bytes,
            options.first_offset,
            options.end_offset,
            options.least_timestamp,
            options.checks_crc,
            options.is_exact,
            next_offset,
        )

    def record_batch(self, topic: str, partition: int, schema: pa.Schema) -> pa.RecordBatch:
        """Return the rows that the kernel has written."""
        rows = self.kernel.rows
        offsets, timestamps, timestamp_types, magics, codecs, producer_ids = self._fixed
        columns = [
            constant(topic, pa.string(), rows),
            constant(partition, pa.int32(), rows),
            offsets.array(rows),
            timestamps.array(rows, TIMESTAMP),
            timestamp_types.array(rows),
            magics.array(rows),
            codec_names(codecs.array(rows)),
            producer_ids.array(rows),
        ]
        if self._stores:
            keys, values, _, _ = self._stores
            columns[:0] = [keys.array(pa.binary()), values.array(pa.binary())]
            if self._with_headers:
                columns.insert(_HEADERS_AT, self._headers(rows))
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _headers(self, rows: int) -> pa.Array:
        _, _, names, contents = self._stores
        pairs = pa.StructArray.from_arrays(
            [names.array(pa.string()), contents.array(pa.binary())], fields=list(HEADERS.value_type)
        )
        nulls = self.kernel.headerless_rows
        valid = self._header_valid.buffer((rows + 7) // 8) if nulls else None
        ends = self._header_ends.buffer(rows + 1)
        return pa.Array.from_buffers(HEADERS, rows, [valid, ends], nulls, children=[pairs])
