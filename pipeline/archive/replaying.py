"""The replay of one partition's archived rows to a topic: same partition, order, times and headers, exactly once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import trio

from ...protocol.records.compression import Codec
from ...protocol.records.record import Buffer
from ...protocol.topic_partition import AnyTopicPartition
from ..errors import PipelineError
from ..sink.batch_building import BatchBuilder
from ..sink.exact_copy import ATTEMPTS, CopyTarget, ExactCopy, copy_with_patience

TRANSACTION_ROWS = 20_000
BATCH_BYTES = 256 << 10
SECONDS_A_TRANSACTION = 2.0
"""The seconds of a limited rate in one transaction."""

Rows = Iterable[tuple[pa.Table, int]]
"""Tables in the order of offsets, each with the exclusive offset up to which the tables so far are complete."""


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """The options of a replay: the rows by time in ms (`until_ms` exclusive), and the records per second, 0 for any."""

    since_ms: int | None
    until_ms: int | None
    rate: float
    codec: Codec


@dataclass(frozen=True, slots=True)
class ReplayReceipt:
    """The result of one partition: records written by this run, its first offset in the archive, and the size of the
    batches that it wrote.
    """

    place: AnyTopicPartition
    records: int
    began_at: int
    size_bytes: int


def replay(
    target: CopyTarget, options: ReplayOptions, rows_from: Callable[[int], Rows], *, attempts: int = ATTEMPTS
) -> ReplayReceipt:
    """Replay the rows that the target lacks; `rows_from` returns rows from an offset on. Raises PipelineError."""

    async def work(copy: ExactCopy) -> ReplayReceipt:
        position, _ = await copy.progress()
        count = await copy.partition_count()
        topic, partition = target.place
        if partition >= count:
            raise PipelineError(f"{topic} has {count} partition(s), and the archive has rows of partition {partition}")
        start = position or 0
        written = size_bytes = 0
        began = time.monotonic()
        for rows, next_offset in _transactions(rows_from(start), options):
            batches = _batches(rows, target.place, options.codec)
            await copy.append(batches, next_offset)
            written += rows.num_rows
            size_bytes += sum(map(len, batches))
            if options.rate:
                await trio.sleep(max(0.0, began + written / options.rate - time.monotonic()))
        return ReplayReceipt(target.place, written, start, size_bytes)

    return copy_with_patience(target, work, attempts=attempts)


def chosen(rows: pa.Table, options: ReplayOptions) -> pa.Table:
    """Return the rows of the selected time."""
    if not rows.num_rows or (options.since_ms is None and options.until_ms is None):
        return rows
    millis = pc.divide(rows["timestamp"].cast(pa.int64()), 1000)
    if options.since_ms is not None:
        rows, millis = (each.filter(pc.greater_equal(millis, options.since_ms)) for each in (rows, millis))
    if options.until_ms is not None:
        rows = rows.filter(pc.less(millis, options.until_ms))
    return rows


def _transactions(tables: Rows, options: ReplayOptions) -> Iterator[tuple[pa.Table, int]]:
    """Yield the rows of one transaction each, and the next offset after it."""
    most = TRANSACTION_ROWS
    if options.rate:
        most = max(1, min(most, int(options.rate * SECONDS_A_TRANSACTION)))
    for table, next_offset in tables:
        rows = chosen(table, options)
        for start in range(0, rows.num_rows, most):
            piece = rows.slice(start, most)
            is_last = start + most >= rows.num_rows
            yield piece, next_offset if is_last else piece["offset"][-1].as_py() + 1
        if not rows.num_rows:
            yield rows, next_offset


def _batches(rows: pa.Table, place: AnyTopicPartition, codec: Codec) -> list[Buffer]:
    topic, partition = place
    builder = BatchBuilder(topic, codec, BATCH_BYTES, lambda name: partition + 1, lambda: -1, partition)
    built = [batch for piece in rows.to_batches() for _, batch in builder.add(piece)]
    return [*built, *(batch for _, batch in builder.rest())]
