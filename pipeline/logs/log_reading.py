"""The read of a range of a log directory in a task: in pieces, converted to Arrow batches."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from ...protocol.errors import BrokerError
from ...protocol.records import v0
from ...protocol.records.batches import read_batch
from ...protocol.records.headers_cy import seek
from ...storage.disk.files import OsFile
from ..columns.header_batches import HeaderBatches, raw_batches
from ..columns.read_options import ReadOptions
from ..columns.record_batches import RecordBatches, RecordOptions
from ..columns.schemas import Mode
from ..errors import DamagedLogError, PipelineError, reason
from ..kafka.offset_options import Bound, Bounds, WhenNoneIsYounger
from .log_files import ANY_TIME, MAX_INT64, list_partitions
from .log_plan import LogRange, PlanOptions, plan
from .log_transactions import hides_aborted

PIECE_BYTES = 8 << 20
"""The bytes read at once, unless a batch is larger."""

ATTEMPTS = 5
"""The number of attempts to find a range again after compaction has replaced its files."""


def read_range(log_range: LogRange, options: ReadOptions, attempts: int = ATTEMPTS) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one range. Raises DamagedLogError, DataLossError, OSError."""
    try:
        descriptor = os.open(log_range.segment.path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield from _read_moved(log_range, options, attempts)
        return
    try:
        status = os.fstat(descriptor)
        if (status.st_dev, status.st_ino) != log_range.segment.identity:
            yield from _read_moved(log_range, options, attempts)
        else:
            reads_headers_only = options.mode is Mode.BATCHES and not (
                options.checks_crc or options.with_uncompressed_size
            )
            pieces = _Mapped(descriptor, log_range) if reads_headers_only else _Pieces(descriptor, log_range)
            yield from _Reader(log_range, options).read(pieces)
    finally:
        os.close(descriptor)


def _read_moved(log_range: LogRange, options: ReadOptions, attempts: int) -> Iterator[pa.RecordBatch]:
    """Yield the same offsets from the files that hold them now: compaction and retention replace and remove
    segments.
    """
    if attempts == 0:
        raise PipelineError(
            f"{log_range.topic}-{log_range.partition}: its files were replaced again and again while they were read"
        )
    place = PlanOptions(
        starting=Bounds(Bound(log_range.first_offset)),
        ending=Bounds(Bound(log_range.end_offset)),
        when_none_is_younger=WhenNoneIsYounger.LATEST,
        split_bytes=2**63,
        fails_on_data_loss=options.fails_on_data_loss,
    )
    partitions = list(list_partitions([os.path.dirname(log_range.segment.path)], []))
    for found in plan(partitions, place):
        yield from read_range(replace(found, aborted=log_range.aborted), options, attempts - 1)


class _Pieces:
    """The bytes of a range by `pread`: a file that is truncated meanwhile is an error then, not the end of the
    process.
    """

    def __init__(self, descriptor: int, log_range: LogRange) -> None:
        self._descriptor = descriptor
        self._buffer = bytearray(min(PIECE_BYTES, log_range.stop - log_range.start))
        self._range = log_range

    def at(self, position: int) -> memoryview:
        """Return the bytes from `position` on: at least one batch, if it is complete. Valid until the next call."""
        piece = self._read(position)
        if len(piece) >= v0.LOG_OVERHEAD:
            _, size = v0.OFFSET_AND_SIZE.unpack_from(piece)
            whole_bytes = v0.LOG_OVERHEAD + size
            if len(self._buffer) < whole_bytes <= self._range.stop - position:
                self._buffer = bytearray(whole_bytes)
                return self._read(position)
        return piece

    def _read(self, position: int) -> memoryview:
        wanted = memoryview(self._buffer)[: self._range.stop - position]
        taken = 0
        while taken < len(wanted):
            count = os.preadv(self._descriptor, [wanted[taken:]], position + taken)
            if count == 0:
                break
            taken += count
        return wanted[:taken]


class _Mapped:
    """The bytes of a range mapped into memory, for reads that need few of them."""

    def __init__(self, descriptor: int, log_range: LogRange) -> None:
        self._start = log_range.start
        self._stored = OsFile(descriptor).map(log_range.start, log_range.stop - log_range.start)

    def at(self, position: int) -> memoryview:
        """Return the bytes from `position` on."""
        return self._stored[position - self._start :]


class _Reader:
    """The reader of a range, piece by piece."""

    def __init__(self, log_range: LogRange, options: ReadOptions) -> None:
        self._range = log_range
        self._options = options
        self._piece_end = 0
        self._next_offset = log_range.first_offset
        self._records = RecordBatches(
            log_range.topic,
            log_range.partition,
            RecordOptions(
                first_offset=log_range.first_offset,
                end_offset=log_range.end_offset,
                least_timestamp=options.least_timestamp,
                batch_rows=options.batch_rows,
                checks_crc=options.checks_crc,
                with_values=options.with_values,
                with_headers=options.with_headers,
                is_exact=True,
            ),
            hides_aborted(log_range.aborted),
        )
        self._headers = HeaderBatches(
            log_range.topic,
            log_range.partition,
            segment=os.path.basename(log_range.segment.path),
            batch_rows=options.batch_rows,
            checks_crc=options.checks_crc,
            with_uncompressed_size=options.with_uncompressed_size,
        )

    def read(self, pieces: _Pieces | _Mapped) -> Iterator[pa.RecordBatch]:
        """Yield all rows. Raises DamagedLogError if a batch does not end where it should."""
        position = self._range.start
        while position < self._range.stop:
            piece = pieces.at(position)
            yield from self._rows(piece, position)
            if self._piece_end == 0:
                raise self._damage(piece, position)
            _, next_offset = seek(piece[: self._piece_end], 0, self._piece_end, MAX_INT64, ANY_TIME)
            self._next_offset = max(self._next_offset, next_offset)
            position += self._piece_end

    def _rows(self, piece: memoryview, position: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the complete batches in `piece`, which is at `position` of the file."""
        if self._options.mode is Mode.RECORDS:
            yield from self._records.read(piece)
            self._piece_end = self._records.position
        elif self._options.mode is Mode.BATCHES:
            yield from self._headers.read(piece, 0, len(piece), file_position=position)
            self._piece_end = self._headers.position
        else:
            self._piece_end = 0
            for rows, end in raw_batches(self._range.topic, self._range.partition, piece, 0, len(piece)):
                yield rows
                self._piece_end = end

    def _damage(self, piece: memoryview, position: int) -> DamagedLogError:
        try:
            batch = read_batch(piece)
            problem = "an incomplete batch" if batch is None else repr(batch)
        except BrokerError as fault:
            problem = reason(fault)
        place = f"{self._range.segment.path} at byte {position}"
        return DamagedLogError(self._range.topic, self._range.partition, self._next_offset, f"{place}: {problem}")


def range_row(item: LogRange) -> dict[str, Any]:
    """Return the row of a range in `mode=ranges`."""
    return {
        "topic": item.topic,
        "partition": item.partition,
        "fromOffset": item.first_offset,
        "untilOffset": item.end_offset,
        "segment": os.path.basename(item.segment.path),
        "position": item.start,
        "sizeInBytes": item.stop - item.start,
    }
