"""The records that a consumer returns, decoded from the batches of a Fetch answer."""

from __future__ import annotations

from typing import NamedTuple

from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.records import v2
from ...protocol.records.batches import BatchView, iter_records
from ...protocol.records.client_records_cy import TruncatedRecordError, decode_plain_batch, decode_records
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


CREATE_TIME = TimestampType.CREATE_TIME
LOG_APPEND_TIME = TimestampType.LOG_APPEND_TIME


def decode_plain(
    topic: str, partition: int, data: memoryview, position: int, from_offset: int, *, checks_crc: bool
) -> tuple[list[ConsumerRecord], int, int] | None:
    """Return the records of the batch at `position` with offsets of at least `from_offset`, the position and the offset
    after the batch; None if the batch is not plain, or malformed: see `decode_plain_batch`.
    """
    try:
        return decode_plain_batch(
            data, position, checks_crc, from_offset, ConsumerRecord, topic, partition, CREATE_TIME, LOG_APPEND_TIME
        )
    except TruncatedRecordError:
        # `decode_batch` raises the error that names the batch.
        return None


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
            decompress(batch.codec, body, limit_bytes=INFLATION_LIMIT_BYTES) if batch.is_compressed else body,
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
