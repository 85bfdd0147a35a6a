"""The records that a consumer returns, decoded from the batches of a Fetch answer."""

from __future__ import annotations

from typing import NamedTuple

from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.records import v2
from ...protocol.records.batches import BatchView, iter_records
from ...protocol.records.client_records_cy import TruncatedRecordError, decode_records
from ...protocol.records.compression import decompress
from ...protocol.records.record import Header, TimestampType

INFLATION_LIMIT_BYTES = 1 << 30
"""The limit of one fetched batch after decompression; a stored batch was within the broker's own limits."""


class ConsumerRecord(NamedTuple):
    """A record of a topic.

    `key` and `value` are None for nulls; `timestamp` is in milliseconds, -1 for none (format v0).
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    leader_epoch: int


def decode_batch(topic: str, partition: int, batch: BatchView, from_offset: int) -> list[ConsumerRecord]:
    """Return the records of one batch with offsets of at least `from_offset` (a batch may begin before it).

    Raises BrokerError (INVALID_RECORD, CORRUPT_MESSAGE) for contents that violate the format.
    """
    timestamp_type = batch.timestamp_type
    if batch.magic < v2.MAGIC:
        return [
            ConsumerRecord(topic, partition, offset, timestamp, timestamp_type, key, value, (), v2.NO_LEADER_EPOCH)
            for offset, timestamp, key, value, _ in iter_records(batch, limit_bytes=INFLATION_LIMIT_BYTES)
            if offset >= from_offset
        ]
    body = batch.view[v2.RECORDS_AT :]
    try:
        return decode_records(
            decompress(batch.codec, body, limit_bytes=INFLATION_LIMIT_BYTES) if batch.is_compressed else bytes(body),
            batch.record_count or 0,
            batch.stored_offset,
            batch.base_timestamp,
            batch.max_timestamp if timestamp_type is TimestampType.LOG_APPEND_TIME else None,
            from_offset,
            ConsumerRecord,
            topic,
            partition,
            timestamp_type,
            batch.leader_epoch,
        )
    except TruncatedRecordError as fault:
        raise BrokerError(ErrorCode.INVALID_RECORD, f"{batch!r} of {topic}-{partition}: {fault}") from fault
