"""The sources of a task's rows: a range over the network or of a log directory, as records or as stored batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from ...protocol.records import v2
from ...protocol.records.batches import iter_batches
from ..columns.column_memory import ColumnMemory
from ..columns.read_options import ReadOptions
from ..columns.record_batches import ANY_TIME, BatchFilter, RecordBatches, RecordOptions
from ..columns.schemas import TIMESTAMP, Mode
from ..errors import DamagedLogError
from ..kafka.fetching import FetchOptions, FetchRange, fetch_pieces
from ..logs.log_plan import LogRange
from ..logs.log_reading import read_range
from ..logs.log_transactions import hides_aborted
from .manifest_entry import OffsetRange

STORED_BATCHES = pa.schema(
    [
        ("partition", pa.int32()),
        ("baseOffset", pa.int64()),
        ("lastOffset", pa.int64()),
        ("timestamp", TIMESTAMP),
        ("timestampType", pa.int32()),
        ("raw", pa.binary()),
    ]
)
"""The schema of an archive of batches; `timestamp` is the youngest record's, `baseOffset` null if unknown from the
header.
"""


_LOGGED_RECORDS = ReadOptions(
    mode=Mode.RECORDS,
    batch_rows=10_000,
    checks_crc=True,
    with_values=True,
    with_uncompressed_size=False,
    least_timestamp=ANY_TIME,
    fails_on_data_loss=True,
)


class RowSource(Protocol):
    """A range that a task can read, without the records that read_committed consumers do not see."""

    @property
    def covers(self) -> OffsetRange:
        """The offsets of the range."""

    def records(self) -> Iterator[pa.RecordBatch]:
        """Yield rows of `mode=records`. Raises PipelineError."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield rows of STORED_BATCHES; a batch belongs to the range with its last record. Raises PipelineError."""


@dataclass(frozen=True, slots=True)
class FetchedRange:
    """A range read over the network."""

    fetch_range: FetchRange
    fetch: FetchOptions
    fails_on_data_loss: bool

    @property
    def covers(self) -> OffsetRange:
        """The offsets of the range, see RowSource."""
        wanted = self.fetch_range
        return OffsetRange(wanted.topic, wanted.partition, wanted.first_offset, wanted.end_offset)

    def records(self) -> Iterator[pa.RecordBatch]:
        """Yield rows of `mode=records`, see RowSource."""
        memory = ColumnMemory()
        wanted = RecordOptions(first_offset=self.covers.from_offset, end_offset=self.covers.until_offset)
        for stored, hides in self._pieces():
            yield from RecordBatches(self.covers.topic, self.covers.partition, wanted, hides, memory).read(stored)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield rows of STORED_BATCHES, see RowSource."""
        for stored, hides in self._pieces(for_whole_batches=True):
            yield stored_batches(self.covers, stored, hides)

    def _pieces(self, *, for_whole_batches: bool = False) -> Iterator[tuple[memoryview, BatchFilter | None]]:
        for piece in fetch_pieces(
            self.fetch_range,
            self.fetch,
            fails_on_data_loss=self.fails_on_data_loss,
            for_whole_batches=for_whole_batches,
        ):
            yield piece.stored, piece.hides_batch


@dataclass(frozen=True, slots=True)
class LoggedRange:
    """A range of a segment file, with the partition's aborted transactions."""

    log_range: LogRange

    @property
    def covers(self) -> OffsetRange:
        """The offsets of the range, see RowSource."""
        wanted = self.log_range
        return OffsetRange(wanted.topic, wanted.partition, wanted.first_offset, wanted.end_offset)

    def records(self) -> Iterator[pa.RecordBatch]:
        """Yield rows of `mode=records`, see RowSource."""
        yield from read_range(self.log_range, _LOGGED_RECORDS)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield rows of STORED_BATCHES, see RowSource."""
        hides = hides_aborted(self.log_range.aborted)
        for rows in read_range(self.log_range, replace(_LOGGED_RECORDS, mode=Mode.RAW)):
            # The batches are contiguous in Arrow's buffer, as in the file.
            yield stored_batches(self.covers, memoryview(rows["raw"].buffers()[2]).cast("B"), hides)


def stored_batches(covers: OffsetRange, stored: memoryview, hides: BatchFilter | None) -> pa.RecordBatch:
    """Return rows of STORED_BATCHES for the batches of `stored` in the range, without control batches.

    Raises DamagedLogError.
    """
    rows = []
    for batch in iter_batches(stored):
        is_hidden = hides is not None and hides(batch)
        if is_hidden or batch.is_control or not covers.from_offset <= batch.last_offset < covers.until_offset:
            continue
        if not batch.crc_is_valid:
            raise DamagedLogError(covers.topic, covers.partition, batch.stored_offset, f"{batch!r} has a wrong CRC")
        has_time = batch.max_timestamp >= 0
        rows.append(
            {
                "partition": covers.partition,
                "baseOffset": batch.base_offset if batch.magic == v2.MAGIC or not batch.is_compressed else None,
                "lastOffset": batch.last_offset,
                "timestamp": batch.max_timestamp * 1000 if has_time else -1000,
                "timestampType": int(batch.timestamp_type) if has_time else -1,
                "raw": bytes(batch.view),
            }
        )
    return pa.RecordBatch.from_pylist(rows, STORED_BATCHES)
