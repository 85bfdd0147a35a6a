"""The fetch of a range of a partition's offsets over the network: it fetches ahead while the task reads.

One partition is fetched at a time, with limits that grow while more data is needed, outside of any fetch session.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from ...client.errors import ConnectionLostError, is_retriable
from ...protocol.apis import ApiKey
from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from ...protocol.records import v2
from ...protocol.records.aborted import AbortedFilter
from ...protocol.records.batches import BatchView, iter_batches, iter_records
from ...protocol.records.headers_cy import seek
from ...protocol.records.record import TimestampType
from ...protocol.schema import NO_UUID
from ..columns.column_memory import ColumnMemory
from ..columns.header_batches import HeaderBatches, raw_batches
from ..columns.read_options import ReadOptions
from ..columns.record_batches import BatchFilter, RecordBatches, RecordOptions
from ..columns.schemas import Mode
from ..errors import DamagedLogError, DataLossError, PipelineError, RecreatedTopicError
from .cluster_view import BACKOFF_S, ClusterView
from .connector_options import DEFAULT_POLL_TIMEOUT_MS
from .offset_options import EARLIEST, LATEST
from .view_reuse import reused_view
from .wire import Wire, WireSettings

MAX_INT64 = 2**63 - 1
ANY_TIME = -(2**63)
FIRST_FETCH_BYTES = 1 << 20
DEFAULT_FETCH_BYTES = 4 << 20
"""Larger answers take more memory and, as they do not fit the CPU's caches, more time for each record."""
GROWTH = 4
MAX_WAIT_MS = 500
MAX_BATCH_BYTES = 2**31 - 1


@dataclass(frozen=True)
class FetchRange(InputPartition):
    """A range of a partition's offsets, the end exclusive, for one task.

    With `topic_id` a recreated topic of the same name is not read; on a broker without Fetch by id (before Kafka
    3.1) this is detected only if the new topic lacks the partition or the offset.
    """

    topic: str
    partition: int
    first_offset: int
    end_offset: int
    topic_id: UUID = NO_UUID


@dataclass(frozen=True, slots=True)
class FetchOptions:
    """The options of a fetch. `max_bytes` limits one answer, unless a single batch is larger.

    A task fails if no record arrives for `poll_timeout_ms` (None: DEFAULT_POLL_TIMEOUT_MS), also where the broker is
    away meanwhile.
    """

    settings: WireSettings
    max_bytes: int = DEFAULT_FETCH_BYTES
    read_committed: bool = False
    poll_timeout_ms: int | None = None

    @property
    def poll_timeout_s(self) -> float:
        """The time limit for the next record, in seconds."""
        return (DEFAULT_POLL_TIMEOUT_MS if self.poll_timeout_ms is None else self.poll_timeout_ms) / 1000


@dataclass(frozen=True, slots=True)
class FetchedPiece:
    """The complete batches of one answer, and the filter of aborted transactions, if requested.

    Their memory is writable and belongs to the reader. The next piece begins at `next_offset`.
    """

    stored: memoryview
    next_offset: int
    hides_batch: BatchFilter | None


def fetch_rows(fetch_range: FetchRange, fetch: FetchOptions, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one range. Raises DamagedLogError, DataLossError, PipelineError.

    In `mode=batches` and `mode=raw` a batch belongs to the range that contains its last record.
    """
    topic, partition = fetch_range.topic, fetch_range.partition
    headers = HeaderBatches(
        topic,
        partition,
        segment=None,
        batch_rows=options.batch_rows,
        checks_crc=options.checks_crc,
        with_uncompressed_size=options.with_uncompressed_size,
    )
    memory = ColumnMemory()
    takes_batches = options.mode is not Mode.RECORDS
    pieces = fetch_pieces(
        fetch_range, fetch, fails_on_data_loss=options.fails_on_data_loss, for_whole_batches=takes_batches
    )
    for piece in pieces:
        stored = piece.stored
        if options.mode is Mode.RECORDS:
            wanted = RecordOptions(
                first_offset=fetch_range.first_offset,
                end_offset=fetch_range.end_offset,
                batch_rows=options.batch_rows,
                checks_crc=options.checks_crc,
                with_values=options.with_values,
                with_headers=options.with_headers,
            )
            yield from RecordBatches(topic, partition, wanted, piece.hides_batch, memory).read(stored)
            continue
        end, _ = seek(stored, 0, len(stored), fetch_range.end_offset, ANY_TIME)
        if options.mode is Mode.BATCHES:
            yield from headers.read(stored, 0, end)
        else:
            yield from (rows for rows, _ in raw_batches(topic, partition, stored, 0, end))


def fetch_pieces(
    fetch_range: FetchRange, fetch: FetchOptions, *, fails_on_data_loss: bool = True, for_whole_batches: bool = False
) -> Iterator[FetchedPiece]:
    """Yield the stored batches of one range, in order; the first and the last may hold records outside of it.

    With `for_whole_batches` the caller takes each batch whose last record is in the range. A broker that converts old
    formats makes a batch that begins at any offset which is asked for: then a batch is cut at the end of the range,
    where the first one of the next range begins. Raises DamagedLogError, DataLossError, PipelineError.
    """
    with reused_view(fetch.settings) as cluster:
        yield from _Fetcher(cluster, fetch_range, fetch, fails_on_data_loss, for_whole_batches).pieces()


class _Fetcher:
    """The fetch of one range. Invariant: `_sent_for` is the offset of the request in flight, if there is one."""

    def __init__(
        self,
        cluster: ClusterView,
        fetch_range: FetchRange,
        fetch: FetchOptions,
        fails_on_data_loss: bool,
        for_whole_batches: bool,
    ) -> None:
        self._cluster = cluster
        self._range = fetch_range
        self._fetch = fetch
        self._fails_on_data_loss = fails_on_data_loss
        self._for_whole_batches = for_whole_batches
        self._position = fetch_range.first_offset
        self._max_bytes = min(FIRST_FETCH_BYTES, fetch.max_bytes)
        self._wire: Wire | None = None
        self._sent_for: int | None = None
        self._deadline = time.monotonic() + fetch.poll_timeout_s

    def pieces(self) -> Iterator[FetchedPiece]:
        """Yield all pieces of the range."""
        while self._position < self._range.end_offset:
            data = self._ask_checked()
            if data is None:
                continue
            stored = memoryview(data.records or b"")  # type: ignore[arg-type]
            end, next_offset = seek(stored, 0, len(stored), MAX_INT64, ANY_TIME)
            if next_offset <= self._position:
                self._meet_nothing(stored, data)
                continue
            self._deadline = time.monotonic() + self._fetch.poll_timeout_s
            self._position = next_offset
            self._max_bytes = min(self._max_bytes * GROWTH, self._fetch.max_bytes)
            if self._position < self._range.end_offset:
                self._ask_ahead()
            stored = stored[:end]
            if self._for_whole_batches and next_offset > self._range.end_offset:
                stored = self._cut(stored)
            yield FetchedPiece(stored, next_offset, self._hidden(data))

    def _cut(self, stored: memoryview) -> memoryview:
        """Return batches without the records that a fetch at the end of the range gets in a batch of their own."""
        end_offset = self._range.end_offset
        over = next(batch for batch in iter_batches(stored) if batch.last_offset >= end_offset)
        if over.magic != v2.MAGIC or over.stored_offset >= end_offset or self._first_offset_at(end_offset) < end_offset:
            return stored
        is_appended = over.timestamp_type is TimestampType.LOG_APPEND_TIME
        kept = v2.build_batch(
            [record for record in iter_records(over) if record.offset < end_offset],
            base_offset=over.stored_offset,
            last_offset=end_offset - 1,
            codec=over.codec,
            timestamp_type=over.timestamp_type,
            max_timestamp=over.max_timestamp if is_appended else None,
        )
        return memoryview(bytearray(stored[: over.position]) + kept)

    def _first_offset_at(self, offset: int) -> int:
        """Return the first offset of the batch that a fetch at an offset begins with; `offset` if there is none."""
        self._position, self._max_bytes = offset, 1
        while (data := self._ask_checked()) is None:
            pass
        stored = memoryview(data.records or b"")  # type: ignore[arg-type]
        return next((batch.stored_offset for batch in iter_batches(stored)), offset)

    def _ask_checked(self) -> PartitionData | None:
        """Return the answer to a fetch at the position; None after a failure, which may have moved the position."""
        try:
            data = self._ask()
            self._check(data)
        except (BrokerError, ConnectionLostError) as failure:
            self._recover(failure)
            return None
        return data

    def _ask(self) -> PartitionData:
        """Return the leader's answer at the position. Raises BrokerError, ConnectionLostError."""
        if self._sent_for != self._position or self._wire is None:
            self._wire = self._cluster.leader(self._range.topic, self._range.partition)
            self._send(self._wire)
        self._sent_for = None
        answer = self._wire.receive(FetchResponse)
        if answer.error_code:
            raise BrokerError(ErrorCode(answer.error_code), "Fetch")
        for topic in answer.responses:
            for data in topic.partitions:
                return data
        raise ConnectionLostError(f"{self._wire.node}: an answer to a Fetch without the partition that was asked for")

    def _ask_ahead(self) -> None:
        """Request the next answer while this one is read; a failure is raised when that answer is awaited."""
        assert self._wire is not None
        try:
            self._send(self._wire)
        except ConnectionLostError:
            self._sent_for = None

    def _send(self, wire: Wire) -> None:
        request = FetchRequest(
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=self._max_bytes,
            isolation_level=1 if self._fetch.read_committed else 0,
            topics=[
                FetchTopic(
                    topic=self._range.topic,
                    topic_id=self._range.topic_id,
                    partitions=[
                        FetchPartition(
                            partition=self._range.partition,
                            fetch_offset=self._position,
                            partition_max_bytes=self._max_bytes,
                        )
                    ],
                )
            ],
        )
        wire.send(request, version=wire.versions.version(ApiKey.FETCH) if self._range.topic_id.int else None)
        self._sent_for = self._position

    def _check(self, data: PartitionData) -> None:
        code = ErrorCode(data.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._meet_loss()
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, "the offsets were looked up again")
        if code is not ErrorCode.NONE:
            raise BrokerError(code, f"{self._range.topic}-{self._range.partition} offset {self._position}")

    def _meet_loss(self) -> None:
        """Handle a missing offset: continue at the nearest existing one, if that is allowed. Raises DataLossError."""
        self._check_is_same_topic()
        place = (self._range.topic, self._range.partition)
        start = self._cluster.list_offsets({place: EARLIEST})[place] or 0
        end = self._cluster.list_offsets({place: LATEST})[place] or 0
        if start <= self._position <= end:
            return
        if self._fails_on_data_loss:
            raise DataLossError(*place, self._position, start, end)
        self._position = start if self._position < start else self._range.end_offset

    def _check_is_same_topic(self) -> None:
        """Raise PipelineError if the topic does not exist any more, or has another id than the requested one."""
        topic, partition, known = self._range.topic, self._range.partition, self._range.topic_id
        if not known.int:
            return
        try:
            found = self._cluster.topics([topic])[topic].topic_id
        except PipelineError as failure:
            raise PipelineError(f"{topic}-{partition} offset {self._position}: {failure}") from failure
        if found != known:
            raise RecreatedTopicError(topic, partition, self._position, "source", known, found)

    def _recover(self, failure: BrokerError | ConnectionLostError) -> None:
        """Prepare the next attempt.

        Raises PipelineError if the failure is permanent, or retries have lasted too long.
        """
        if isinstance(failure, BrokerError):
            self._check_is_same_topic()
        if not is_retriable(failure) or time.monotonic() > self._deadline:
            place = f"{self._range.topic}-{self._range.partition} offset {self._position}"
            raise PipelineError(f"{place}: {failure}") from failure
        self._sent_for = self._wire = None
        # All connections, not only the leader's: the broken one may be the one that was asked for the leader.
        self._cluster.close()
        self._cluster.forget(self._range.topic, self._range.partition)
        time.sleep(BACKOFF_S)

    def _meet_nothing(self, stored: memoryview, data: PartitionData) -> None:
        """Handle an answer without a complete batch. Raises DamagedLogError, or PipelineError after the time limit."""
        if len(stored):
            # Only before Fetch v3 can a limit truncate the very first batch (KIP-74).
            if self._max_bytes >= MAX_BATCH_BYTES:
                problem = "the broker's answer is not a record batch"
                raise DamagedLogError(self._range.topic, self._range.partition, self._position, problem)
            self._max_bytes = min(self._max_bytes * GROWTH, MAX_BATCH_BYTES)
        elif time.monotonic() > self._deadline:
            raise PipelineError(
                f"{self._range.topic}-{self._range.partition} offset {self._position}: no records arrived for "
                f"{self._fetch.poll_timeout_s:g} s (wanted up to {self._range.end_offset}, high watermark "
                f"{data.high_watermark})"
            )

    def _hidden(self, data: PartitionData) -> BatchFilter | None:
        if not self._fetch.read_committed or not data.aborted_transactions:
            return None
        aborted = sorted(data.aborted_transactions, key=lambda item: item.first_offset)
        known = AbortedFilter([(item.first_offset, item.producer_id) for item in aborted])

        def hides(batch: BatchView) -> bool:
            if batch.is_control:
                known.pass_marker(batch)
                return True
            return known.hides(batch)

        return hides
