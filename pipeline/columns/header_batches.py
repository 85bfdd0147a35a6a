"""The conversion of stored batches to Arrow batches of `mode=batches` and `mode=raw`: one row for each stored batch."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from ...protocol.errors import BrokerError
from ...protocol.records import v2
from ...protocol.records.batches import BatchView, inner_message_set, iter_batches
from ...protocol.records.compression import decompress
from ...protocol.records.headers_cy import HeaderColumns
from ..errors import DamagedLogError, reason
from .arrow_columns import FixedColumn, codec_names, constant, scalar
from .schemas import BATCHES, RAW, TIMESTAMP

UNKNOWN = -1
MICROS = scalar(1000, pa.int64())
RAW_CHUNK_BYTES = 8 << 20
"""The largest size of raw batches in one Arrow batch, unless a single batch is larger."""
RAW_CHUNK_ROWS = 10_000


class HeaderBatches:
    """A converter of one partition's stored batches to rows of `mode=batches`."""

    def __init__(
        self,
        topic: str,
        partition: int,
        *,
        segment: str | None,
        batch_rows: int,
        checks_crc: bool = False,
        with_uncompressed_size: bool = False,
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._segment = segment
        self._batch_rows = batch_rows
        self._checks_crc = checks_crc
        self._with_uncompressed_size = with_uncompressed_size
        self.position = 0
        """The position after the last complete batch when a `read` has ended."""

    def read(self, stored: memoryview, position: int, end: int, *, file_position: int = 0) -> Iterator[pa.RecordBatch]:
        """Yield a row for each complete batch; `file_position` is that of `stored` in its segment.

        Raises DamagedLogError.
        """
        self.position = position
        while True:
            columns = _Columns(self._batch_rows, self._checks_crc)
            start = self.position
            self.position = columns.kernel.fill(stored, start, end, file_position)
            if not columns.kernel.rows:
                return
            sizes = None
            if self._with_uncompressed_size:
                batches = iter_batches(stored[: self.position], start)
                sizes = pa.array([self._uncompressed_size(batch) for batch in batches], pa.int64())
            yield self._arrow_batch(columns, sizes)

    def _arrow_batch(self, columns: _Columns, uncompressed_sizes: pa.Array | None) -> pa.RecordBatch:
        rows = columns.kernel.rows
        base_offsets, last_offsets, positions, first_timestamps, max_timestamps, producer_ids = (
            column.array(rows) for column in columns.int64s
        )
        sizes, magics, codecs, counts, timestamp_types, leader_epochs, producer_epochs, base_sequences = (
            column.array(rows) for column in columns.int32s
        )
        transactional, control, crc_ok = (column.array(rows).cast(pa.bool_()) for column in columns.flags)
        is_over_a_broker = self._segment is None
        return pa.RecordBatch.from_arrays(
            [
                constant(self._topic, pa.string(), rows),
                constant(self._partition, pa.int32(), rows),
                _null_if_unknown(base_offsets),
                last_offsets,
                pa.nulls(rows, pa.int64()) if is_over_a_broker else positions,
                sizes,
                magics,
                codec_names(codecs),
                _null_if_unknown(counts),
                _timestamps(first_timestamps),
                _timestamps(max_timestamps),
                timestamp_types,
                leader_epochs,
                producer_ids,
                producer_epochs,
                base_sequences,
                transactional,
                control,
                crc_ok if self._checks_crc else pa.nulls(rows, pa.bool_()),
                pa.nulls(rows, pa.int64()) if uncompressed_sizes is None else uncompressed_sizes,
                constant(self._segment, pa.string(), rows),
            ],
            schema=BATCHES,
        )

    def _uncompressed_size(self, batch: BatchView) -> int:
        """Return the bytes of the batch's records before compression; of a v0 or v1 set, of its messages."""
        header_size = v2.HEADER_SIZE if batch.magic == v2.MAGIC else 0
        if not batch.is_compressed:
            return batch.size_bytes - header_size
        try:
            if batch.magic == v2.MAGIC:
                return len(decompress(batch.codec, batch.view[v2.RECORDS_AT :]))
            return len(inner_message_set(batch))
        except BrokerError as fault:
            raise DamagedLogError(self._topic, self._partition, batch.stored_offset, reason(fault)) from fault


def raw_batches(
    topic: str, partition: int, stored: memoryview, position: int, end: int
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Yield Arrow batches with a row of `mode=raw` for each complete batch, each with the position after its last
    one.
    """
    while True:
        chunk_end = min(end, position + RAW_CHUNK_BYTES)
        headers = _Columns(RAW_CHUNK_ROWS, checks_crc=False)
        after = headers.kernel.fill(stored, position, chunk_end, 0)
        if after == position and chunk_end < end:
            headers = _Columns(1, checks_crc=False)
            after = headers.kernel.fill(stored, position, end, 0)
        if after == position:
            return
        yield _raw_arrow_batch(topic, partition, headers, stored[position:after]), after
        position = after


def _raw_arrow_batch(topic: str, partition: int, headers: _Columns, raw: memoryview) -> pa.RecordBatch:
    rows = headers.kernel.rows
    base_offsets, last_offsets, _, _, _, _ = headers.int64s
    sizes, _, _, counts, _, _, _, _ = headers.int32s
    ends = pc.cumulative_sum(sizes.array(rows)).buffers()[1]
    starts = pa.py_buffer(bytes(4) + ends.to_pybytes())
    # One copy of all batches: they are contiguous, as Arrow stores its strings.
    data = pa.py_buffer(bytes(raw))
    return pa.RecordBatch.from_arrays(
        [
            constant(topic, pa.string(), rows),
            constant(partition, pa.int32(), rows),
            _null_if_unknown(base_offsets.array(rows)),
            last_offsets.array(rows),
            _null_if_unknown(counts.array(rows)),
            pa.Array.from_buffers(pa.binary(), rows, [None, starts, data]),
        ],
        schema=RAW,
    )


class _Columns:
    """Memory for the headers of one Arrow batch, and the kernel that fills it."""

    def __init__(self, rows: int, checks_crc: bool) -> None:
        self.int64s = tuple(FixedColumn(pa.int64(), rows) for _ in range(6))
        self.int32s = tuple(FixedColumn(pa.int32(), rows) for _ in range(8))
        self.flags = tuple(FixedColumn(pa.uint8(), rows) for _ in range(3))
        self.kernel = HeaderColumns(
            tuple(column.view for column in self.int64s),
            tuple(column.view for column in self.int32s),
            tuple(column.view for column in self.flags),
            checks_crc,
        )


def _null_if_unknown(column: pa.Array) -> pa.Array:
    is_unknown = pc.equal(column, UNKNOWN)
    return pc.if_else(is_unknown, pa.scalar(None, column.type), column) if is_unknown.true_count else column


def _timestamps(millis: pa.Array) -> pa.Array:
    """Convert milliseconds to microseconds; missing and overflowing values become null: a header is shown whatever it
    holds.
    """
    known = _null_if_unknown(millis)
    try:
        return pc.multiply_checked(known, MICROS).view(TIMESTAMP)
    except pa.ArrowInvalid:
        fits = pc.less_equal(pc.abs(known), (2**63 - 1) // 1000)
        return pc.multiply(pc.if_else(fits, known, pa.scalar(None, pa.int64())), MICROS).view(TIMESTAMP)
