"""Where a task's rows come from: a range over the network or of a log directory, as records or as stored batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from ...protocol.records import v2
from ...protocol.records.batches import BatchView, iter_batches
from ...storage.transaction_index import AbortedTransaction
from ..fetching import FetchOptions, FetchRange, fetch_pieces
from ..log_files import mapped
from ..log_plan import LogRange
from ..record_batches import BatchFilter, RecordBatches, RecordOptions
from ..schemas import TIMESTAMP
from .manifest import OffsetRange

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
"""Of an archive of batches; `timestamp` is the youngest record's, `baseOffset` null where the header does not say."""


class RowSource(Protocol):
    """A range that a task can read. What no consumer of committed records sees is left out."""

    @property
    def covers(self) -> OffsetRange:
        """Its offsets."""

    def records(self) -> Iterator[pa.RecordBatch]:
        """Rows of `mode=records`. Raises PipelineError."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Rows of STORED_BATCHES: a batch belongs to the range that has its last record. Raises PipelineError."""


@dataclass(frozen=True, slots=True)
class FetchedRange:
    """A range over the network."""

    fetch_range: FetchRange
    fetch: FetchOptions
    fails_on_data_loss: bool

    @property
    def covers(self) -> OffsetRange:
        """See RowSource."""
        wanted = self.fetch_range
        return OffsetRange(wanted.topic, wanted.partition, wanted.first_offset, wanted.end_offset)

    def records(self) -> Iterator[pa.RecordBatch]:
        """See RowSource."""
        for stored, hides in self._pieces():
            yield from _decoded(self.covers, stored, hides)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """See RowSource."""
        for stored, hides in self._pieces():
            yield stored_batches(self.covers, stored, hides)

    def _pieces(self) -> Iterator[tuple[memoryview, BatchFilter | None]]:
        for piece in fetch_pieces(self.fetch_range, self.fetch, fails_on_data_loss=self.fails_on_data_loss):
            yield piece.stored, piece.hides_batch


@dataclass(frozen=True, slots=True)
class LoggedRange:
    """A range of a segment file; `aborted` are the partition's aborted transactions."""

    log_range: LogRange
    aborted: Sequence[AbortedTransaction]

    @property
    def covers(self) -> OffsetRange:
        """See RowSource."""
        wanted = self.log_range
        return OffsetRange(wanted.topic, wanted.partition, wanted.first_offset, wanted.end_offset)

    def records(self) -> Iterator[pa.RecordBatch]:
        """See RowSource."""
        yield from _decoded(self.covers, self._stored(), self._hides if self.aborted else None)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """See RowSource."""
        yield stored_batches(self.covers, self._stored(), self._hides)

    def _stored(self) -> memoryview:
        return mapped(self.log_range.segment, self.log_range.stop)[self.log_range.start :]

    def _hides(self, batch: BatchView) -> bool:
        return batch.is_transactional and any(
            each.producer_id == batch.producer_id and each.first_offset <= batch.base_offset <= each.last_offset
            for each in self.aborted
        )


def stored_batches(covers: OffsetRange, stored: memoryview, hides: BatchFilter | None) -> pa.RecordBatch:
    """Rows of STORED_BATCHES for the batches of `stored` that belong to the range; control batches never do."""
    rows = []
    for batch in iter_batches(stored):
        is_hidden = hides is not None and hides(batch)
        if is_hidden or batch.is_control or not covers.from_offset <= batch.last_offset < covers.until_offset:
            continue
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


def _decoded(covers: OffsetRange, stored: memoryview, hides: BatchFilter | None) -> Iterator[pa.RecordBatch]:
    wanted = RecordOptions(first_offset=covers.from_offset, end_offset=covers.until_offset)
    return RecordBatches(covers.topic, covers.partition, wanted, hides).read(stored)
