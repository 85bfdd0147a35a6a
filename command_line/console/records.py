"""Reading records for pages: forwards or backwards from an offset, filtered, within a budget of bytes and time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from time import monotonic
from typing import NamedTuple, cast

import trio

from ...broker.server.worker_threads import run_in_worker
from ...client.admin import Admin
from ...client.errors import ConnectionLostError
from ...protocol.apis import ApiKey
from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ...protocol.records.batches import BatchView, iter_batches, iter_records
from ...protocol.records.record import Record, TimestampType

NEWEST_FETCH_BY_NAME = 12
"""The last version of Fetch that names topics instead of their ids."""
CHUNK_BYTES = 262144
EXCERPT_BYTES = 16384
"""Bytes of a key, a value or a header that a list keeps."""
MOST_HEADERS = 100
LARGEST_WINDOW = 100_000
"""Most offsets that a backward search reads at a time."""
READ_UNCOMMITTED = 0


class Excerpt(NamedTuple):
    """The beginning of a key or a value, and its whole size in bytes."""

    data: bytes
    size_bytes: int

    @property
    def is_whole(self) -> bool:
        """Whether nothing was cut off."""
        return len(self.data) == self.size_bytes


@dataclass(frozen=True, slots=True)
class FoundRecord:
    """A record with the facts of its batch; long keys, values and headers are cut."""

    partition: int
    offset: int
    timestamp_ms: int
    is_log_append_time: bool
    key: Excerpt | None
    value: Excerpt | None
    headers: tuple[tuple[str, Excerpt | None], ...]
    more_headers: int
    """Headers beyond `MOST_HEADERS`."""
    magic: int
    codec: str
    is_control: bool
    is_transactional: bool
    producer_id: int


@dataclass(frozen=True, slots=True)
class Search:
    """A condition on records: bytes that the key must equal, and bytes that key, value or a header must contain."""

    key: bytes | None = None
    text: bytes | None = None
    """Text to search for, in lower case, as ASCII letters are compared without regard to case."""
    with_control: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether all records but control records match."""
        return self.key is None and self.text is None

    def matches(self, record: Record) -> bool:
        """Return whether a record is searched for."""
        if self.key is not None and record.key != self.key:
            return False
        if self.text is None:
            return True
        pieces = [record.key, record.value]
        for header in record.headers:
            pieces += (header.key, header.value)
        return any(piece is not None and self.text in piece.lower() for piece in pieces)


class Budget:
    """A limit of the bytes and the time of one search; a search that ends early says where to continue."""

    def __init__(self, most_bytes: int, most_s: float) -> None:
        self._remaining_bytes = most_bytes
        self._deadline = monotonic() + most_s

    def spend(self, size_bytes: int) -> None:
        """Count bytes that were read."""
        self._remaining_bytes -= size_bytes

    @property
    def is_spent(self) -> bool:
        """Whether the search must end."""
        return self._remaining_bytes <= 0 or monotonic() >= self._deadline


class Stretch(NamedTuple):
    """A stretch of offsets [low, high) that was searched, and the records found there in the order of their offsets."""

    low: int
    high: int
    records: list[FoundRecord]


class RecordReader:
    """A reader of records through an admin client whose ``max.answer.bytes`` limits the size of a batch."""

    def __init__(self, admin: Admin, most_batch_bytes: int) -> None:
        self._admin = admin
        self._most_batch_bytes = most_batch_bytes
        self._turns = trio.CapacityLimiter(2)
        """Limits the number of batches in memory."""

    async def forward(
        self, topic: str, partition: int, start: int, end: int, search: Search, limit: int, budget: Budget
    ) -> Stretch:
        """Return up to ``limit`` matching records of offsets [start, end), the first ones. Raises BrokerError."""
        found: list[FoundRecord] = []
        position = start
        while position < end and len(found) < limit and not (budget.is_spent and position > start):
            chunk = await self._chunk(topic, partition, position, end, search, limit - len(found), budget)
            found += chunk.records
            position = chunk.high
        return Stretch(start, min(position, end), found)

    async def backward(
        self, topic: str, partition: int, start: int, end: int, search: Search, limit: int, budget: Budget
    ) -> Stretch:
        """Return up to ``limit`` matching records of offsets [start, end), the last ones. Raises BrokerError."""
        found: deque[FoundRecord] = deque()
        high, window = end, limit
        while high > start and len(found) < limit:
            position = low = max(start, high - window)
            last: deque[FoundRecord] = deque(maxlen=limit - len(found))
            while position < high:
                if budget.is_spent and high < end:
                    return Stretch(high, end, list(found))
                chunk = await self._chunk(topic, partition, position, high, search, limit, budget)
                last += chunk.records
                position = chunk.high
            found.extendleft(reversed(last))
            high, window = low, min(2 * window, LARGEST_WINDOW)
        return Stretch(found[0].offset if len(found) == limit else high, end, list(found))

    async def whole(self, topic: str, partition: int, offset: int) -> tuple[FoundRecord, Record] | None:
        """Return the record at an offset, cut and whole; None if there is none. Raises BrokerError."""
        async with self._turns:
            data = await self._fetch(topic, partition, offset)
            for batch in iter_batches(data):
                if batch.last_offset >= offset:
                    return await run_in_worker(_record_at, partition, batch, offset, self._most_batch_bytes)
            return None

    async def _chunk(
        self, topic: str, partition: int, start: int, end: int, search: Search, limit: int, budget: Budget
    ) -> Stretch:
        """Return the matching records of one read, whose stretch ends where the next read begins."""
        async with self._turns:
            data = await self._fetch(topic, partition, start)
            if not data:
                return Stretch(start, end, [])
            budget.spend(len(data))
            return await run_in_worker(_scan, partition, data, start, end, search, limit, self._most_batch_bytes)

    async def _fetch(self, topic: str, partition: int, offset: int) -> bytes | memoryview:
        """Return batches as they are stored, from the one with ``offset`` on; empty at the end of the log."""
        place = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=CHUNK_BYTES)
        request = FetchRequest(
            max_bytes=CHUNK_BYTES,
            isolation_level=READ_UNCOMMITTED,
            topics=[FetchTopic(topic=topic, partitions=[place])],
            gregor_as_stored=True,
        )
        leader = await self._admin.leader(topic, partition)
        version = await self._admin.version(ApiKey.FETCH, newest=NEWEST_FETCH_BY_NAME)
        try:
            answer = await self._admin.ask_once(leader, request, FetchResponse, version=version)
        except ConnectionLostError as error:
            raise BrokerError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"{topic}-{partition} cannot be read at offset {offset}: {error}; "
                "gregor.console.max.batch.bytes limits the size of a batch",
            ) from None
        part = answer.responses[0].partitions[0]
        if part.error_code:
            raise BrokerError(ErrorCode(part.error_code), f"{topic}-{partition} at offset {offset}")
        return cast("bytes | memoryview", part.records) or b""


def _scan(
    partition: int, data: bytes | memoryview, start: int, end: int, search: Search, limit: int, most_bytes: int
) -> Stretch:
    """Return the first matching records of these batches. Raises BrokerError for a batch that cannot be read."""
    found: list[FoundRecord] = []
    position = start
    for batch in iter_batches(data):
        if batch.base_offset >= end:
            return Stretch(start, end, found)
        for record in _records_of(batch, search, most_bytes):
            if record.offset >= end:
                return Stretch(start, end, found)
            if record.offset >= start and search.matches(record):
                found.append(_found(partition, batch, record))
                if len(found) == limit:
                    return Stretch(start, record.offset + 1, found)
        position = max(position, batch.last_offset + 1)
    if position == start:
        raise BrokerError(ErrorCode.CORRUPT_MESSAGE, f"no batch can be read at offset {start}")
    return Stretch(start, position, found)


def _records_of(batch: BatchView, search: Search, most_bytes: int) -> Iterator[Record]:
    if batch.is_control and not search.with_control:
        return iter(())
    return iter_records(batch, limit_bytes=most_bytes)


def _record_at(partition: int, batch: BatchView, offset: int, most_bytes: int) -> tuple[FoundRecord, Record] | None:
    for record in iter_records(batch, limit_bytes=most_bytes):
        if record.offset == offset:
            return _found(partition, batch, record), record
    return None


def _found(partition: int, batch: BatchView, record: Record) -> FoundRecord:
    headers = tuple(
        (header.key[:EXCERPT_BYTES].decode("utf-8", "replace"), _excerpt(header.value))
        for header in record.headers[:MOST_HEADERS]
    )
    return FoundRecord(
        partition=partition,
        offset=record.offset,
        timestamp_ms=record.timestamp,
        is_log_append_time=batch.timestamp_type is TimestampType.LOG_APPEND_TIME,
        key=_excerpt(record.key),
        value=_excerpt(record.value),
        headers=headers,
        more_headers=max(0, len(record.headers) - MOST_HEADERS),
        magic=batch.magic,
        codec=batch.codec.name.lower(),
        is_control=batch.is_control,
        is_transactional=batch.is_transactional,
        producer_id=batch.producer_id,
    )


def _excerpt(data: bytes | None) -> Excerpt | None:
    return None if data is None else Excerpt(data[:EXCERPT_BYTES], len(data))
