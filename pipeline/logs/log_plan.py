"""The plan of a read of log directories: ranges of bytes split at batch boundaries, a task for each.

Unneeded offsets, partitions and times are left out by the index before any record is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pyspark.sql.datasource import InputPartition

from ...protocol.errors import BrokerError
from ...protocol.records.batches import iter_records, read_batch
from ...protocol.records.headers_cy import seek
from ...storage.index.transaction_index import AbortedTransaction
from ..errors import DamagedLogError, DataLossError, OptionError, reason
from ..kafka.offset_options import EARLIEST, LATEST, Bound, Bounds, WhenNoneIsYounger
from .log_files import ANY_TIME, MAX_INT64, PartitionFiles, SegmentFile, SegmentIndex, mapped
from .log_transactions import read_transactions


@dataclass(frozen=True)
class LogRange(InputPartition):
    """The bytes `start` to `stop` of a segment, which begin and end with a batch, and the requested offsets in them.

    `end_offset` is exclusive. Two ranges never have an offset in common.
    """

    topic: str
    partition: int
    segment: SegmentFile
    start: int
    stop: int
    first_offset: int
    end_offset: int
    aborted: tuple[AbortedTransaction, ...] = ()


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """The request for a read of partitions. `least_timestamp` (ms) leaves out batches that are certainly older.

    With `read_committed` the records of open transactions are left out, and those of aborted ones noted.
    """

    starting: Bounds
    ending: Bounds
    when_none_is_younger: WhenNoneIsYounger
    split_bytes: int
    fails_on_data_loss: bool = True
    least_timestamp: int = ANY_TIME
    least_offset: int = 0
    end_offset: int = MAX_INT64
    read_committed: bool = False


def plan(partitions: Sequence[PartitionFiles], options: PlanOptions) -> list[LogRange]:
    """Return the ranges to read, partition by partition in the order of their offsets.

    Raises DamagedLogError, DataLossError, OptionError where no record is as young as the starting time, OSError.
    """
    return [log_range for partition in partitions for log_range in _plan_partition(partition, options)]


def _plan_partition(partition: PartitionFiles, options: PlanOptions) -> Iterator[LogRange]:
    first_offset = max(_first_offset(partition, options), options.least_offset)
    aborted, stable_offset = read_transactions(partition) if options.read_committed else ((), partition.log_end_offset)
    end_offset = min(stable_offset, options.end_offset, _end_offset(partition, options))
    next_bases = [*(segment.base_offset for segment in partition.segments[1:]), partition.stored_end_offset]
    for segment, next_base in zip(partition.segments, next_bases, strict=True):
        if segment.size_bytes and segment.base_offset < end_offset and next_base > first_offset:
            start_offset = max(first_offset, segment.base_offset)
            ends_inside = end_offset < next_base
            for part in _cut(partition, segment, start_offset, min(end_offset, next_base), ends_inside, options):
                yield replace(part, aborted=_within(part, aborted)) if aborted else part


def _within(part: LogRange, aborted: Sequence[AbortedTransaction]) -> tuple[AbortedTransaction, ...]:
    return tuple(
        item for item in aborted if item.first_offset < part.end_offset and item.last_offset >= part.first_offset
    )


def _cut(
    partition: PartitionFiles,
    segment: SegmentFile,
    first_offset: int,
    end_offset: int,
    ends_inside: bool,
    options: PlanOptions,
) -> Iterator[LogRange]:
    """Yield the ranges of one segment; `ends_inside` means that `end_offset` is within the segment."""
    stored = mapped(segment, segment.size_bytes)
    index = SegmentIndex(segment, stored)
    try:
        start = _start(stored, index, first_offset, options.least_timestamp)
        stop = _stop(stored, index, start, end_offset) if ends_inside else len(stored)
        while start < stop:
            cut = stop
            if stop - start > options.split_bytes:
                wanted = start + options.split_bytes
                cut, _ = seek(stored, max(start, index.before_position(wanted)), wanted, MAX_INT64, ANY_TIME)
                cut = min(cut, stop)
            if cut == start:
                raise _damage(partition, stored, start)
            cut_offset = end_offset if cut >= stop else _first_offset_at(partition, stored, cut)
            if first_offset < cut_offset:
                yield LogRange(*partition.name, segment, start, cut, first_offset, cut_offset)
            start, first_offset = cut, max(first_offset, cut_offset)
    finally:
        index.close()


def _start(stored: memoryview, index: SegmentIndex, first_offset: int, least_timestamp: int) -> int:
    position = index.before_offset(first_offset)
    if least_timestamp != ANY_TIME:
        position = max(position, index.before_timestamp(least_timestamp))
    position, _ = seek(stored, position, len(stored), first_offset, ANY_TIME)
    return position


def _stop(stored: memoryview, index: SegmentIndex, start: int, end_offset: int) -> int:
    """Return the position of the first batch that begins at or after `end_offset`."""
    position, _ = seek(stored, max(start, index.before_offset(end_offset)), len(stored), end_offset, ANY_TIME)
    batch = read_batch(stored, position) if position < len(stored) else None
    if batch is None:
        return len(stored)
    # The batch contains or follows the end; without a record count in the header the reader of its records decides.
    begins_before = batch.record_count is None or batch.base_offset < end_offset
    return batch.end if begins_before else position


def _first_offset_at(partition: PartitionFiles, stored: memoryview, position: int) -> int:
    try:
        batch = read_batch(stored, position)
        if batch is None:
            raise _damage(partition, stored, position)
        return batch.base_offset
    except BrokerError as fault:
        raise DamagedLogError(*partition.name, None, f"byte {position}: {reason(fault)}") from fault


def _damage(partition: PartitionFiles, stored: memoryview, position: int) -> DamagedLogError:
    try:
        read_batch(stored, position)
    except BrokerError as fault:
        return DamagedLogError(*partition.name, None, f"byte {position}: {reason(fault)}")
    return DamagedLogError(*partition.name, None, f"byte {position}: an incomplete batch")


# --- ends ---


def _first_offset(partition: PartitionFiles, options: PlanOptions) -> int:
    bound = options.starting.of(*partition.name)
    if bound.timestamp is None:
        return _offset_of(partition, bound, fails_on_data_loss=options.fails_on_data_loss)
    found = first_record_since(partition, bound.timestamp)
    if found is not None:
        return found
    if options.when_none_is_younger is WhenNoneIsYounger.ERROR:
        raise OptionError(
            f"{partition.name}: no record has a timestamp of at least {bound.timestamp}; "
            "set startingOffsetsByTimestampStrategy=latest to begin at the end of the log"
        )
    return partition.log_end_offset


def _end_offset(partition: PartitionFiles, options: PlanOptions) -> int:
    bound = options.ending.of(*partition.name)
    if bound.timestamp is None:
        return MAX_INT64 if bound.offset == LATEST else bound.offset
    found = first_record_since(partition, bound.timestamp)
    return MAX_INT64 if found is None else found


def _offset_of(partition: PartitionFiles, bound: Bound, *, fails_on_data_loss: bool) -> int:
    if bound.offset == EARLIEST:
        return partition.log_start_offset
    end_offset = partition.log_end_offset
    if bound.offset == LATEST:
        return end_offset
    if fails_on_data_loss and not partition.log_start_offset <= bound.offset <= end_offset:
        raise DataLossError(*partition.name, bound.offset, partition.log_start_offset, end_offset)
    return max(bound.offset, partition.log_start_offset)


def first_record_since(partition: PartitionFiles, timestamp_ms: int) -> int | None:
    """Return the offset of the first record of `timestamp_ms` or later, None without one (or without timestamps, in
    v0).

    Raises DamagedLogError, OSError.
    """
    for segment in partition.segments:
        stored = mapped(segment, segment.size_bytes)
        index = SegmentIndex(segment, stored)
        try:
            position = index.before_timestamp(timestamp_ms)
        finally:
            index.close()
        while position < len(stored):
            position, _ = seek(stored, position, len(stored), partition.log_start_offset, timestamp_ms)
            batch = read_batch(stored, position) if position < len(stored) else None
            if batch is None:
                break
            try:
                for record in iter_records(batch):
                    if record.timestamp >= timestamp_ms and record.offset >= partition.log_start_offset:
                        return record.offset
            except BrokerError as fault:
                raise DamagedLogError(*partition.name, batch.stored_offset, reason(fault)) from fault
            position = batch.end
    return None
