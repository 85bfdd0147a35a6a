"""Records as a consumer hands them out, decoded from what a Fetch answer holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..protocol.records import v2
from ..protocol.records.batches import BatchView, iter_records
from ..protocol.records.compression import decompress
from ..protocol.records.record import Header, TimestampType
from ..protocol.records.varint import read_varint

INFLATION_LIMIT_BYTES = 1 << 30
"""How far one fetched batch may inflate; what a broker has stored was within its own limits."""


class ConsumerRecord(NamedTuple):
    """One record. `key` and `value` are None for nulls; `timestamp` is in milliseconds, -1 for none (format v0)."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    leader_epoch: int


def decode_batch(topic: str, partition: int, batch: BatchView, from_offset: int) -> Iterator[ConsumerRecord]:
    """The records of one batch with offsets of at least `from_offset` (a batch may begin before it).

    Raises BrokerError (INVALID_RECORD, CORRUPT_MESSAGE) for contents that break the format.
    """
    if batch.magic == v2.MAGIC:
        yield from _decode_v2(topic, partition, batch, from_offset)
        return
    timestamp_type = batch.timestamp_type
    for record in iter_records(batch, limit_bytes=INFLATION_LIMIT_BYTES):
        if record.offset >= from_offset:
            yield ConsumerRecord(
                topic, partition, record.offset, record.timestamp, timestamp_type, record.key, record.value, (), -1
            )


def _decode_v2(topic: str, partition: int, batch: BatchView, from_offset: int) -> Iterator[ConsumerRecord]:
    """As `batches.iter_records` does, with the one-byte lengths and empty headers of most records read in place."""
    view = batch.view[v2.RECORDS_AT :]
    body = decompress(batch.codec, view, limit_bytes=INFLATION_LIMIT_BYTES) if batch.is_compressed else bytes(view)
    timestamp_type = batch.timestamp_type
    fixed_timestamp = batch.max_timestamp if timestamp_type is TimestampType.LOG_APPEND_TIME else None
    base_timestamp, base_offset, epoch = batch.base_timestamp, batch.stored_offset, batch.leader_epoch
    position = 0
    for _ in range(batch.record_count or 0):
        size, position = read_varint(body, position)
        end = position + size
        position += 1
        delta = body[position]
        if delta < 0x80:
            position += 1
            timestamp = base_timestamp + ((delta >> 1) ^ -(delta & 1))
        else:
            delta, position = read_varint(body, position, max_bytes=10)
            timestamp = base_timestamp + delta
        delta, position = read_varint(body, position)
        offset = base_offset + delta
        if offset < from_offset:
            position = end
            continue
        key: bytes | None = None
        size, position = read_varint(body, position)
        if size >= 0:
            key = body[position : position + size]
            position += size
        value: bytes | None = None
        size, position = read_varint(body, position)
        if size >= 0:
            value = body[position : position + size]
            position += size
        headers = () if body[position] == 0 else _decode_headers(body, position)
        position = end
        if fixed_timestamp is not None:
            timestamp = fixed_timestamp
        yield ConsumerRecord(topic, partition, offset, timestamp, timestamp_type, key, value, headers, epoch)


def _decode_headers(body: bytes, position: int) -> tuple[Header, ...]:
    count, position = read_varint(body, position)
    headers = []
    for _ in range(count):
        size, position = read_varint(body, position)
        key = body[position : position + size]
        size, position = read_varint(body, position + size)
        value = None if size < 0 else body[position : position + size]
        position += max(size, 0)
        headers.append(Header(key, value))
    return tuple(headers)
