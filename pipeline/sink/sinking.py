"""A task of the sink: writes its rows to topics, in a transaction of its own, exactly once.

Each task of a sink has a transactional id and a group, both named after the sink and the task's number. In the
transaction that holds its rows it commits, as an offset of that group, the number of the micro-batch, and beside it how
many rows these were. So a task that runs again (a failed attempt, a speculative one, a micro-batch that Spark repeats)

1. takes over the transactional id, which aborts an open transaction of an earlier attempt and fences that attempt;
2. reads the group's offset: if it has the micro-batch, the rows are skipped, else they are written.

Spark gives the same rows to the same task when it repeats a micro-batch of a source that can be read again. Where that
does not hold (`repartition()` without a key, another number of shuffle partitions after a restart) no sink could do
better; a task whose micro-batch was written with another number of rows fails rather than lose or repeat any.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import trio
from pyspark.sql.datasource import WriterCommitMessage

from ...client import Admin, Delivery, Producer
from ...client.errors import ClientError
from ...client.wire.group_offsets import CommittedOffset
from ...protocol.errors import BrokerError
from ...protocol.records import v2
from ...protocol.records.batches import iter_batches
from ...protocol.records.compression import Codec
from ...protocol.records.record import Buffer
from ...protocol.topic_partition import AnyTopicPartition
from ..errors import PipelineError
from ..worker_process import prepare_worker
from .batch_building import BatchBuilder, Built

DELIVERIES_AHEAD = 64
"""The number of batches in flight before the task waits for the oldest."""
ROWS_AT_ONCE = 10_000
BYTES_AT_ONCE = 1 << 20
"""The rows that are converted at once, or their bytes, whichever is reached first."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of a sink. With `topic` None the rows name it; `producer` and `client` are keys of our client."""

    bootstrap: str
    topic: str | None
    codec: Codec
    batch_bytes: int
    is_exactly_once: bool
    is_raw: bool
    producer: dict[str, Any]
    client: dict[str, Any]


@dataclass(frozen=True, slots=True)
class SinkTask:
    """The part of a micro-batch that a task writes; `run` distinguishes the streams that write to one sink."""

    sink: str
    batch_id: int
    number: int
    run: str

    @property
    def name(self) -> str:
        """The task's transactional id, and its group."""
        return f"{self.sink}.{self.number}"


@dataclass
class SinkReceipt(WriterCommitMessage):
    """The result of a task: its rows, and the first and last offset of them by topic and partition."""

    rows: int = 0
    was_repeated: bool = False
    offsets: dict[AnyTopicPartition, tuple[int, int]] = field(default_factory=dict)
    name: str = ""


def write_rows(rows: Iterator[pa.RecordBatch], task: SinkTask, options: SinkOptions) -> SinkReceipt:
    """Write the rows of one task. Raises PipelineError, and none of them is visible then (to read_committed)."""
    prepare_worker()
    first = next((batch for batch in rows if batch.num_rows), None)
    if first is None:
        return SinkReceipt(name=task.name)
    writer = _Writer(task, options)
    try:
        return trio.run(writer.write, first, rows)
    except (BrokerError, ClientError) as fault:
        raise PipelineError(f"sink {task.sink}, batch {task.batch_id}, task {task.number}: {fault}") from fault


async def forget_sink(options: SinkOptions, names: list[str]) -> None:
    """Delete the groups of tasks whose sink will not be written to again. Raises BrokerError, ClientError."""
    async with Admin(options.bootstrap, **options.client) as admin:
        await admin.delete_groups(names)


class _Writer:
    """The writer of one task's rows."""

    def __init__(self, task: SinkTask, options: SinkOptions) -> None:
        self._task = task
        self._options = options
        self._receipt = SinkReceipt(name=task.name)
        self._under_way: list[tuple[AnyTopicPartition, int, Delivery]] = []
        self._partition_counts: dict[str, int] = {}
        self._anchor: AnyTopicPartition | None = None

    async def write(self, first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> SinkReceipt:
        options = self._options
        if not options.is_exactly_once:
            async with Producer(options.bootstrap, **options.producer, **options.client) as producer:
                await self._write_all(producer, first, rest)
            return self._receipt
        identity: dict[str, Any] = {"transactional_id": self._task.name, **options.producer, **options.client}
        async with Producer(options.bootstrap, **identity) as producer:
            # Only now has an earlier owner of this transactional id either committed or lost its transaction.
            if await self._was_written(first, rest):
                return self._receipt
            async with producer.transaction():
                await self._write_all(producer, first, rest)
                await producer.send_offsets_to_transaction(self._task.name, self._progress())
        return self._receipt

    async def _was_written(self, first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> bool:
        """Return whether this micro-batch is in the topics already. Raises PipelineError if another one is."""
        async with Admin(self._options.bootstrap, **self._options.client) as admin:
            committed = await admin.committed_offsets(self._task.name)
        if not committed:
            return False
        last = max(committed.values())
        if last.offset <= self._task.batch_id:
            return False
        rows = first.num_rows + sum(batch.num_rows for batch in rest)
        expected = self._description(rows)
        if last.offset > self._task.batch_id + 1 or last.metadata != expected:
            raise PipelineError(
                f"sink {self._task.sink}: batch {self._task.batch_id} came as {expected}, but the topic has batch "
                f"{last.offset - 1} as {last.metadata}: a new checkpoint needs another sinkName"
            )
        self._receipt.rows = rows
        self._receipt.was_repeated = True
        return True

    def _progress(self) -> dict[AnyTopicPartition, CommittedOffset]:
        assert self._anchor is not None
        return {self._anchor: CommittedOffset(self._task.batch_id + 1, self._description(self._receipt.rows))}

    def _description(self, rows: int) -> str:
        return json.dumps({"run": self._task.run, "rows": rows})

    async def _write_all(self, producer: Producer, first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> None:
        builder = BatchBuilder(
            self._options.topic,
            self._options.codec,
            self._options.batch_bytes,
            self._partition_counts.__getitem__,
            lambda: time.time_ns() // 1_000_000,
            self._task.number,
        )
        waiting = [first]
        while waiting:
            for rows in waiting:
                await self._learn_topics(producer, rows)
                built = _raw_batches(rows, self._options.topic) if self._options.is_raw else builder.add(rows)
                for place, batch in built:
                    await self._send(producer, place, batch)
                if not self._options.is_raw:
                    self._receipt.rows += rows.num_rows
            # In a thread, so that batches are sent while Spark makes the next rows.
            waiting = await trio.to_thread.run_sync(_next_rows, rest)
        for place, batch in builder.rest():
            await self._send(producer, place, batch)
        await self._settle(0)

    async def _learn_topics(self, producer: Producer, rows: pa.RecordBatch) -> None:
        if self._options.topic is not None:
            topics = [self._options.topic]
        else:
            index = rows.schema.get_field_index("topic")
            topics = [] if index < 0 else [name for name in rows.column(index).unique().to_pylist() if name is not None]
        for topic in topics:
            if topic not in self._partition_counts:
                self._partition_counts[topic] = len(await producer.partitions_for(topic))

    async def _send(self, producer: Producer, place: AnyTopicPartition, batch: Buffer) -> None:
        (count,) = v2.UINT32.unpack_from(batch, v2.RECORD_COUNT_AT)
        self._anchor = self._anchor or place
        self._under_way.append((place, count, await producer.send_batch(*place, batch)))
        if self._options.is_raw:
            self._receipt.rows += count
        if len(self._under_way) >= DELIVERIES_AHEAD:
            await self._settle(DELIVERIES_AHEAD // 2)

    async def _settle(self, left: int) -> None:
        """Wait for the oldest deliveries until `left` are in flight. Raises the error of a failed one."""
        settled = self._under_way[: len(self._under_way) - left]
        del self._under_way[: len(settled)]
        for place, count, delivery in settled:
            offset = (await delivery).offset
            known = self._receipt.offsets.get(place)
            self._receipt.offsets[place] = (offset if known is None else known[0], offset + count - 1)


def _next_rows(rest: Iterator[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return the next rows, usually as one batch; none at the end.

    Spark's batches are small, and each costs a change of threads and a look at its columns, whatever its size.
    """
    taken: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in rest:
        taken.append(batch)
        rows, size_bytes = rows + batch.num_rows, size_bytes + batch.nbytes
        if rows >= ROWS_AT_ONCE or size_bytes >= BYTES_AT_ONCE:
            break
    if len(taken) <= 1:
        return taken
    joined: list[pa.RecordBatch] = pa.Table.from_batches(taken).combine_chunks().to_batches()
    return joined


def _raw_batches(rows: pa.RecordBatch, topic: str | None) -> Iterator[Built]:
    """Yield the stored batches in rows of `mode=raw`, without control batches, which belong to their own log."""
    topics = rows.column("topic").to_pylist() if topic is None else [topic] * rows.num_rows
    for name, partition, raw in zip(topics, rows.column("partition").to_pylist(), rows.column("raw"), strict=True):
        for batch in iter_batches(raw.as_py()):
            if batch.magic != v2.MAGIC:
                raise PipelineError(f"{name}-{partition}: a batch of format v{batch.magic} cannot be produced as it is")
            if not batch.is_control and batch.record_count:
                yield (name, partition), batch.view
