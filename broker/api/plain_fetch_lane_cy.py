"""A lane for plain Fetch requests: from the bytes of a request to the parts of its answer, in one compiled loop.

A request is plain if a consumer without a fetch session sends it in a version that is not flexible, if all partitions
are here and can be read, if `PlainReader` finds the records, and if they are either sent as stored or converted down
from uncompressed batches. While they do not reach ``min_bytes``, the request waits (`DelayedPlainFetch`). The lane
takes the same steps as `Dispatcher.answer` and `FetchOperation` do with such a request, without the objects that only
other requests need, and leaves every other request, with nothing done, to them. The lane is not used where other parts
of the broker read declared messages: with an authorizer, quotas or fault rules.

This is ordinary Python that is also compiled: ``plain_fetch_lane_cy.pxd`` has the C types.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

try:
    import cython
except ImportError:
    from ...protocol.records import cython_stand_in as cython

from ...protocol.apis import ApiKey
from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.records import promised_size, v2
from ...protocol.records.kernel_cy import Stop
from ...protocol.records.lazy import DEFAULT_CHUNK_BYTES
from ...protocol.records.padding import padding
from ...storage.log.log_slice import LogSlice
from ...storage.log.read_outcome import ReadOutcome
from ..config.replication import RACK_AWARE_SELECTOR
from ..conversion.readable_formats import FIRST_VERSION_WITH_ZSTD, LAST_VERSION_OF_V1, newest_readable_magic
from ..monitoring.request_conversions import RequestConversionCost
from ..replicas.fetching.conversion import LEGACY_MAGICS, SMALL_BYTES, LazyConvertRecords, SliceStretch
from ..replicas.fetching.reading import FIRST_VERSION_FROM_FOLLOWERS, LAST_VERSION_WITH_HARD_LIMIT
from ..server.parts import FileSlice

if not cython.compiled:
    from ...protocol.plain_fetch_cy import FetchAnswer, ReceivedFetch
    from ...protocol.records.kernel_cy import DownConversion
    from ...protocol.records.message_bytes import int32_at
    from ...storage.log.plain_reading_cy import PlainReader

if TYPE_CHECKING:
    from ...storage.log.partition_log import PartitionLog
    from ..conversion.conversion_pool import ConversionPool
    from ..replicas.partition import Partition
    from ..server.client_connection import ClientConnection
    from ..server.parts import Part
    from .services import Services

FETCH = ApiKey.FETCH
NOT_PLAIN, FOUND = int(ReadOutcome.NOT_PLAIN), int(ReadOutcome.FOUND)
_FIRST_VERSION_WITH_ZSTD = FIRST_VERSION_WITH_ZSTD
_FIRST_VERSION_FROM_FOLLOWERS = FIRST_VERSION_FROM_FOLLOWERS
_LAST_VERSION_WITH_HARD_LIMIT = LAST_VERSION_WITH_HARD_LIMIT
_NEWEST_MAGIC = v2.MAGIC
_LEGACY_MAGICS = LEGACY_MAGICS
_FIRST_VERSION_UNCONVERTED = LAST_VERSION_OF_V1 + 1
_FIRST_VERSION_WITH_STABLE_OFFSET = 4
_READ_COMMITTED = 1
_BATCH_DONE, _AT_END = int(Stop.BATCH_DONE), int(Stop.AT_END)
_SMALL_BYTES = SMALL_BYTES
_OFFSET_AND_SIZE_BYTES = 12
_LEAST_SHARE = promised_size.LEAST_SHARE
_LEAST_LOST_SHARE = promised_size.LEAST_LOST_SHARE
_MOST_GROWTH = promised_size.MOST_GROWTH
_MOST_MEASURED = 8
"""The partitions of a request of which more than the first batch may be measured: each takes up to half a
millisecond, and the handler lets other requests be served in between."""
_ALL_OFFSETS = promised_size.ALL_OFFSETS
MOST_BYTES_AT_ONCE = 32 * 1024
"""Most stored bytes of all partitions of an answer that are converted in memory; more are converted while sending."""


class PlainFetchLane:
    """A lane that plans the answers to the plain Fetch requests of all connections of one broker."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._partitions = services.partitions
        self._metrics = services.metrics
        self._errors = services.metrics.response_errors
        self._quotas = services.quotas
        self._config = services.config
        self._pool: ConversionPool = services.conversions
        self._request = ReceivedFetch()
        self._answer = FetchAnswer()
        self._reader = PlainReader(DEFAULT_CHUNK_BYTES)
        self._conversion = DownConversion(0, 0)
        self.missing_bytes = 0
        """After `answer`: the bytes that a plain request needs before it is answered; 0 if it is not plain."""
        self.found: list[Partition] = []
        """The partitions of the latest request."""
        self._stored: list[int] = []
        """The bytes of their records, as stored."""
        self._version = 0
        self._to_magic = 0
        self._reads_zstd = False
        """Whether records of zstd are sent to the client, or replaced for it."""
        self._measured_count = 0
        self._converts = False
        """Whether the records of the latest partition must be converted."""
        self._at_once: list[tuple[int, int, int, int]] = []
        """The conversions that are done: partition, records, stored bytes, converted bytes."""
        self._left_at_once_bytes = 0
        """The stored bytes that may still be converted while the answer is made."""

    @property
    def max_wait_ms(self) -> int:
        """For how long the latest request may wait for its records."""
        return self._request.max_wait_ms

    def answer(
        self,
        frame: memoryview,
        position: int,
        version: int,
        correlation_id: int,
        client: ClientConnection,
        is_last: bool = False,
    ) -> list[Any] | None:
        """Return the answer to the request whose body begins at ``position``.

        Returns None, with nothing done, if the request is not plain, or if `missing_bytes` are missing and it may wait:
        with ``is_last`` it may not.
        """
        request = self._request
        self.missing_bytes = 0
        self.found.clear()
        self._stored.clear()
        self._at_once.clear()
        if self._quotas.is_active or not request.decode(frame, position, version) or request.replica_id >= 0:
            return None
        if request.isolation_level > _READ_COMMITTED:
            return None
        if request.has_rack and self._config.replica_selector_class == RACK_AWARE_SELECTOR:
            return None
        self._version = version
        self._to_magic = newest_readable_magic(version)
        self._reads_zstd = version >= _FIRST_VERSION_WITH_ZSTD or self._pool.zstd_codec is not None
        self._measured_count = 0
        self._left_at_once_bytes = MOST_BYTES_AT_ONCE
        began_ns = time.thread_time_ns() if self._to_magic < _NEWEST_MAGIC else 0
        parts = self._parts(is_last)
        if parts is None:
            return None
        pieces = self._encoded(parts, correlation_id)
        self._count(parts, client, began_ns)
        return pieces

    def _parts(self, is_last: bool) -> list[Part | bytes | None] | None:
        """Return the records of each partition, None for one without records; None if the request is not plain.

        Without ``is_last`` also None if `missing_bytes` are missing.
        """
        request = self._request
        found = self.found
        parts: list[Part | bytes | None] = []
        most_bytes = min(request.max_bytes, self._config.fetch_max_bytes)
        missing_bytes = min(request.min_bytes, most_bytes)
        at_least_one = self._version > _LAST_VERSION_WITH_HARD_LIMIT
        for number in range(request.count):
            name = request.topics[request.topic_number(number)]
            partition = self._partitions.find_encoded(name, request.partition(number))
            if partition is None:
                return None
            size = self._read(partition, number, most_bytes, at_least_one)
            if size < 0:
                return None
            part: Part | bytes | None = None
            if size > 0:
                part = self._part(request.offset(number), size)
                if part is None:
                    return None
                at_least_one = False
                most_bytes = max(0, most_bytes - size)
                missing_bytes -= size
                size = self._reader.size_bytes
            found.append(partition)
            self._stored.append(size)
            parts.append(part)
        if missing_bytes <= 0 or is_last:
            return parts
        self.missing_bytes = missing_bytes
        for partition in found:
            # As in `FetchOperation`, each attempt counts.
            self._metrics.topics[partition.topic].fetch_requests += 1
        return None

    def _read(self, partition: Partition, number: int, remaining_bytes: int, at_least_one: bool) -> int:
        """Find the records of a partition; return their size as stored, -1 if the request is not plain.

        The steps are those of `reading.read_partitions` for a consumer.
        """
        request = self._request
        log = partition.log
        epoch = request.leader_epoch(number)
        if epoch >= 0 and epoch != partition.leader_epoch:
            return -1
        if not self._reads_zstd and log.config.compression_type == "zstd":
            return -1
        if partition.role is not None and self._version < _FIRST_VERSION_FROM_FOLLOWERS and not partition.is_leader:
            return -1
        max_bytes = min(request.most_bytes(number), remaining_bytes)
        if max_bytes < 0:
            return -1
        offset = request.offset(number)
        reader = self._reader
        bound = self._bound(log)
        outcome = reader.find(log, offset, max_bytes, bound, at_least_one)
        if outcome == NOT_PLAIN:
            return -1
        is_found = outcome == FOUND
        end_offset = reader.end_offset if is_found else offset
        if request.isolation_level == _READ_COMMITTED and self._has_aborted(log, offset, end_offset):
            return -1
        if not is_found:
            return 0
        size = reader.size_bytes
        if size == max_bytes and not at_least_one and reader.first_bytes > size:
            # Not even the first batch is complete. Clients with a hard limit get it anyway, others nothing.
            return 0 if self._version > _LAST_VERSION_WITH_HARD_LIMIT else -1
        if not self._may_send(log, reader.magics):
            return -1
        return size

    def _bound(self, log: PartitionLog) -> int:
        """Return the end of the readable records, as an exclusive offset."""
        if self._request.isolation_level == _READ_COMMITTED:
            return log.last_stable_offset
        return log.high_watermark

    def _has_aborted(self, log: PartitionLog, first_offset: int, end_offset: int) -> bool:
        """Return whether aborted transactions must be listed, or it is not known."""
        try:
            return bool(log.aborted_transactions(first_offset, end_offset))
        except BrokerError:
            return True

    def _may_send(self, log: PartitionLog, magics: int) -> bool:
        """Return whether records of these formats are plain, and find out whether they must be converted.

        The rules are those of `FetchOperation`.
        """
        to_magic = self._to_magic
        self._converts = magics >> (to_magic + 1) != 0
        if to_magic < _NEWEST_MAGIC:
            # Wrappers of old formats may have to be numbered.
            return self._converts and log.config.message_downconversion_enable
        if magics & _LEGACY_MAGICS == 0:
            return self._version >= _FIRST_VERSION_WITH_ZSTD or self._pool.zstd_codec is None
        return not self._config.gregor_message_upconversion_enable

    def _part(self, offset: int, size: int) -> Part | bytes | None:
        """Return the part with the records that were found last, None if the request is not plain."""
        if self._converts:
            return self._converted(offset, size)
        return FileSlice(self._slice(offset))

    def _slice(self, offset: int) -> LogSlice:
        reader = self._reader
        return LogSlice(
            reader.file.acquire(),
            reader.position,
            reader.size_bytes,
            start_offset=offset,
            end_offset=reader.end_offset,
            magics=reader.magics,
            segment=reader.segment,
        )

    def _converted(self, offset: int, counted_bytes: int) -> LazyConvertRecords | bytes | None:
        """Return the part that converts the records, with its promised size: as `plan_down_conversion`.

        A few records are converted at once, so that the answer needs no task of its connection.
        """
        reader = self._reader
        if not reader.cut_incomplete_batch():
            return None
        # The first batch, and the head of the next one.
        size = reader.size_bytes
        if not reader.load(reader.position, min(size, reader.first_bytes + _OFFSET_AND_SIZE_BYTES)):
            return None
        conversion = self._conversion
        conversion.begin(self._to_magic, offset, 0)
        converted_bytes = conversion.measure_batch(reader.view, reader.window_bytes)
        first_end = conversion.position
        if converted_bytes == 0 or conversion.stop != _BATCH_DONE or self._measured_count >= _MOST_MEASURED:
            return None
        log_slice = self._slice(offset)
        promised = self._promised(log_slice, counted_bytes, first_end, converted_bytes)
        if size <= _SMALL_BYTES and size <= self._left_at_once_bytes:
            converted = self._converted_now(offset, promised)
            if converted is not None:
                log_slice.release()
                self._left_at_once_bytes -= size
                return converted
        return LazyConvertRecords(
            log_slice,
            self._pool,
            self._to_magic,
            size_bytes=promised,
            first_end=first_end,
            stored_bytes=size,
            zstd_codec=self._pool.zstd_codec,
        )

    def _converted_now(self, offset: int, promised: int) -> bytes | None:
        """Return all of the records in the other format, with padding; None if they must be converted while sending."""
        reader = self._reader
        conversion = self._conversion
        size = reader.size_bytes
        if not reader.load(reader.position, size):
            return None
        converted = bytearray(promised)
        conversion.begin(self._to_magic, offset, 0)
        filled = conversion.fill(reader.view, size, memoryview(converted), 0)
        if conversion.stop != _AT_END or conversion.position != size:
            return None
        self._at_once.append((len(self.found), conversion.converted_count, size, filled))
        return bytes(converted) if filled == promised else b"".join((converted[:filled], *padding(promised - filled)))

    def _promised(self, log_slice: LogSlice, counted_bytes: int, first_end: int, converted_bytes: int) -> int:
        """Return the size to promise, as `promised_size`, whose measurements only few requests need."""
        size = log_slice.size_bytes
        loses_little = converted_bytes > _LEAST_SHARE * first_end
        if not loses_little and first_end - converted_bytes < _LEAST_LOST_SHARE * (size - first_end):
            # Perhaps the first batch lost only records below the requested offset.
            conversion = self._conversion
            conversion.begin(self._to_magic, _ALL_OFFSETS, 0)
            whole_bytes = conversion.measure_batch(self._reader.view, first_end)
            loses_little = whole_bytes > _LEAST_SHARE * first_end and self._has_batch_at(first_end, size)
        if not loses_little:
            self._measured_count += 1
            stretch = SliceStretch(log_slice, self._pool.shared)
            return promised_size.promised_size(
                stretch, counted_bytes, self._to_magic, log_slice.start_offset, first_end, converted_bytes
            )
        largest = max(converted_bytes + _MOST_GROWTH * (size - first_end), size)
        return max(converted_bytes, min(largest, counted_bytes))

    def _has_batch_at(self, position: int, end: int) -> bool:
        """Return whether there is a complete batch behind the first one, by its head."""
        reader = self._reader
        if position + _OFFSET_AND_SIZE_BYTES > reader.window_bytes:
            return False
        size = int32_at(reader.window, position + 8)
        return 0 < size <= end - position - _OFFSET_AND_SIZE_BYTES

    def _encoded(self, parts: list[Part | bytes | None], correlation_id: int) -> list[Any]:
        """Return the answer with these records."""
        request = self._request
        answer = self._answer
        is_committed = request.isolation_level == _READ_COMMITTED
        answer.begin(self._version, correlation_id, len(request.topics))
        pieces: list[Any] = []
        last_topic = -1
        for number in range(request.count):
            topic = request.topic_number(number)
            if topic != last_topic:
                answer.add_topic(request.topics[topic], request.partition_count(topic))
                last_topic = topic
            log = self.found[number].log
            stable = log.last_stable_offset if self._version >= _FIRST_VERSION_WITH_STABLE_OFFSET else -1
            part = parts[number]
            size = 0 if part is None else len(part) if isinstance(part, bytes) else part.size
            answer.add_partition(
                request.partition(number), log.high_watermark, stable, log.log_start_offset, is_committed, size
            )
            if part is not None:
                pieces.append(answer.take())
                pieces.append(part)
        rest = answer.take()
        if rest:
            pieces.append(rest)
        return pieces

    def _count(self, parts: list[Part | bytes | None], client: ClientConnection, began_ns: int) -> None:
        """Count the request in the metrics, as `Dispatcher.answer` and `FetchOperation` do."""
        version = self._version
        metrics = self._metrics
        client.request_counts[FETCH, version] += 1
        client.is_follower = False
        metrics.fetch_conversions.request_count += 1
        if self._errors is not None:
            # One of the answer, and one of each partition.
            self._errors.counts[FETCH, ErrorCode.NONE] += 1 + len(parts)
        for number in range(len(parts)):
            counters = metrics.topics[self.found[number].topic]
            counters.fetch_requests += 1
            counters.bytes_out += self._stored[number]
        if version < _FIRST_VERSION_UNCONVERTED:
            self._charge(parts, client, began_ns)

    def _charge(self, parts: list[Part | bytes | None], client: ClientConnection, began_ns: int) -> None:
        """Count the cost of the plan and of conversions that are done, and later that of the others."""
        of_request = RequestConversionCost(conversions=self._metrics.fetch_conversions)
        part_count = len(parts) - parts.count(None)
        of_request.parts = part_count - len(self._at_once)
        cpu_ns = (time.thread_time_ns() - began_ns) // max(part_count, 1)
        for number, record_count, stored_bytes, converted_bytes in self._at_once:
            of_topic = self._metrics.topics[self.found[number].topic].fetch_conversion
            for cost in (client.down_conversion, of_topic, of_request):
                cost.add(record_count, stored_bytes, cpu_ns, converted_bytes)
        if of_request.parts == 0 and self._at_once:
            self._metrics.fetch_conversions.record(of_request)
        for number in range(len(parts)):
            part = parts[number]
            if isinstance(part, LazyConvertRecords):
                of_topic = self._metrics.topics[self.found[number].topic].fetch_conversion
                part.charge((client.down_conversion, of_topic, of_request), cpu_ns)
