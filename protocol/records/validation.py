"""The checks of a partition's leader before an append (Kafka `UnifiedLog.analyzeAndValidateRecords`, `LogValidator`).

The difference to Kafka: no batch is converted, recompressed or rebuilt. Batches that Kafka would rebuild (compressed v0
sets, v1 sets whose inner offsets are not 0, 1, 2 ...) are kept as produced and only marked, by
`offsets.assign_offsets`. Compressed data is decompressed in pieces that are not kept, so the check of a batch needs a
few hundred kilobytes of memory, whatever the batch claims to contain.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ..errors import BrokerError, ErrorCode
from . import v0, v1, v2
from .batches import BatchView, inner_base_offset, invalid_record, iter_batches, wrapped_set
from .compression import DEFAULT_LIMIT_BYTES, Codec, decompressed_pieces
from .message_walk import MessageWalk
from .produced_cy import Produced, ProducedBatch
from .record import NO_TIMESTAMP, Buffer, TimestampType
from .walk_cy import MAX_NOTED, RecordWalk

__all__ = [
    "AppendRules",
    "Produced",
    "ProducedBatch",
    "RecordError",
    "RecordValidationError",
    "check_produce_version",
    "validate",
    "walk_records",
]

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)

FIRST_V2_PRODUCE_VERSION = 3
FIRST_ZSTD_PRODUCE_VERSION = 7


@dataclass(slots=True, frozen=True)
class AppendRules:
    """The requirements of a topic's configuration for a payload; the defaults are Kafka's.

    `max_message_bytes` bounds one batch as stored; the `timestamp_` bounds are milliseconds around now and bind only
    for topics with CreateTime; `keys_required` is set for compacted topics. `limit_bytes` bounds the decompressed size
    of a batch. `from_client`: clients may not write control batches or choose offsets, coordinators may.
    """

    max_message_bytes: int = 1048588
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    timestamp_before_max_ms: int = INT64_MAX
    timestamp_after_max_ms: int = INT64_MAX
    keys_required: bool = False
    limit_bytes: int = DEFAULT_LIMIT_BYTES
    from_client: bool = True


class RecordError(NamedTuple):
    """The reason why one record, by its index in the batch, made the whole batch invalid (KIP-467)."""

    batch_index: int
    message: str


class RecordValidationError(BrokerError):
    """A batch with records that break the topic's rules; `record_errors` lists them, the first thousand at most."""

    def __init__(self, code: ErrorCode, message: str, record_errors: list[RecordError]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


class _Walk(Protocol):
    """The common results of the two walks over a batch's records."""

    bad_keys: list[int]
    bad_timestamps: list[tuple[int, int]]


def check_produce_version(data: Buffer, version: int) -> None:
    """Check a partition's records by the rules of the request's version (Kafka `ProduceRequest`).

    Raises BrokerError INVALID_RECORD (from version 3 on: not exactly one batch of format v2),
    UNSUPPORTED_COMPRESSION_TYPE (zstd before version 7) or CORRUPT_MESSAGE.
    """
    if version < FIRST_V2_PRODUCE_VERSION:
        return
    batches = iter_batches(data)
    first = next(batches, None)
    prefix = f"Produce requests with version {version}"
    if first is None:
        raise invalid_record(f"{prefix} must have at least one record batch per partition")
    if first.magic != v2.MAGIC:
        raise invalid_record(f"{prefix} are only allowed to contain record batches with magic version 2")
    if version < FIRST_ZSTD_PRODUCE_VERSION and _codec_of(first) is Codec.ZSTD:
        raise BrokerError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"{prefix} are not allowed to use ZStandard compression"
        )
    if next(batches, None) is not None:
        raise invalid_record(f"{prefix} are only allowed to contain exactly one record batch per partition")


def validate(data: Buffer, rules: AppendRules, *, now_ms: int) -> Produced:
    """Check one partition's payload for an append at `now_ms`, without changing `data`.

    A payload without a complete batch is valid and has nothing to append. Raises BrokerError CORRUPT_MESSAGE,
    MESSAGE_TOO_LARGE or INVALID_RECORD for the whole payload, RecordValidationError (INVALID_RECORD or
    INVALID_TIMESTAMP) for single invalid records.
    """
    first: BatchView | None = None
    last: BatchView | None = None
    for last in iter_batches(data):
        first = first or last
        _check_shell(last, rules)
    if first is None or last is None:
        return Produced(memoryview(data)[:0])
    if first.magic == v2.MAGIC or first.is_compressed:
        if last is not first:
            raise invalid_record("Compressed outer record has more than one batch")
        checked = _check_v2(first, rules, now_ms) if first.magic == v2.MAGIC else _check_wrapper(first, rules, now_ms)
    else:
        checked = _check_messages(data, first, rules, now_ms)
    return Produced(memoryview(data)[: last.end], [checked])


def _check_shell(batch: BatchView, rules: AppendRules) -> None:
    if batch.magic == v2.MAGIC and rules.from_client and batch.stored_offset != 0:
        raise invalid_record(
            f"The baseOffset of the record batch in the append should be 0, but it is {batch.stored_offset}"
        )
    if batch.size_bytes > rules.max_message_bytes:
        raise BrokerError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch size in the append is {batch.size_bytes} bytes which exceeds the maximum configured "
            f"value of {rules.max_message_bytes}.",
        )
    if not batch.crc_is_valid:
        raise BrokerError(ErrorCode.CORRUPT_MESSAGE, f"Record is corrupt (stored crc = {batch.crc})")


def _codec_of(batch: BatchView) -> Codec:
    """Return the compression of a batch. Raises BrokerError INVALID_RECORD for an unknown one."""
    try:
        return batch.codec
    except BrokerError as fault:
        raise invalid_record(fault.message or "") from fault


def _decompressed(codec: Codec, data: Buffer, magic: int, rules: AppendRules) -> Iterator[bytes]:
    """Decompress a produced batch. Raises BrokerError INVALID_RECORD for broken data, MESSAGE_TOO_LARGE.

    The CRC is valid, so the producer sent the data like this. Kafka answers -1, or INVALID_RECORD for a fault inside a
    record: clients retry neither of them, as they would retry CORRUPT_MESSAGE.
    """
    try:
        yield from decompressed_pieces(codec, data, magic=magic, limit_bytes=rules.limit_bytes)
    except BrokerError as fault:
        if fault.code is not ErrorCode.CORRUPT_MESSAGE:
            raise
        raise invalid_record(fault.message or "") from fault


# --- format v2 ---


def _check_v2(batch: BatchView, rules: AppendRules, now_ms: int) -> ProducedBatch:
    count = batch.record_count or 0
    _check_v2_header(batch, count, rules)
    earliest, latest = _timestamp_bounds(batch, rules, now_ms)
    walk = RecordWalk(count, batch.base_timestamp, earliest, latest, rules.keys_required)
    codec = _codec_of(batch)
    body = batch.view[v2.RECORDS_AT :]
    if codec is Codec.NONE:
        walk_records(walk, iter((body,)))
    else:
        walk_records(walk, _decompressed(codec, body, v2.MAGIC, rules))
        if not walk.is_sequential:
            raise invalid_record("The offset deltas in a compressed record batch are not 0, 1, 2 ...")
    _refuse_bad_records(walk, batch, count, rules, now_ms)
    is_log_append_time = batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    return ProducedBatch(
        position=batch.position,
        size_bytes=batch.size_bytes,
        magic=v2.MAGIC,
        codec=codec,
        record_count=count,
        max_timestamp=batch.max_timestamp if is_log_append_time else walk.max_timestamp,
        index_of_max_timestamp=0 if is_log_append_time else walk.index_of_max,
        keyed=walk.null_keys < count,
        is_transactional=batch.is_transactional,
        is_control=batch.is_control,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
    )


def _check_v2_header(batch: BatchView, count: int, rules: AppendRules) -> None:
    if not rules.from_client:
        return
    offsets = f"[{batch.stored_offset}, {batch.last_offset}]"
    if batch.last_offset < batch.stored_offset:
        raise invalid_record(f"Batch has an invalid offset range: {offsets}")
    if count <= 0:
        raise invalid_record(f"Invalid reported count for record batch: {count}")
    if batch.last_offset - batch.stored_offset + 1 != count:
        raise invalid_record(f"Inconsistent batch offset range {offsets} and count of records {count}")
    if batch.is_control:
        raise invalid_record("Clients are not allowed to write control records")
    if batch.has_producer_id and batch.base_sequence < 0:
        raise invalid_record(
            f"Invalid sequence number {batch.base_sequence} in record batch with producerId {batch.producer_id}"
        )


def walk_records(walk: RecordWalk, pieces: Iterator[Buffer]) -> None:
    """Feed the pieces of a v2 batch's records to `walk`. Raises BrokerError INVALID_RECORD."""
    rest: Buffer = b""
    try:
        for piece in pieces:
            data = bytes(rest) + piece if rest else piece
            rest = data[walk.feed(data) :]
            if walk.is_finished():
                break
    except ValueError as fault:
        raise invalid_record(f"Found invalid record structure: {fault}") from fault
    if not walk.is_finished():
        raise invalid_record("Incorrect declared batch size, premature EOF reached")
    # The request for one more piece also makes the codec check the end of its stream.
    if rest or next(pieces, None):
        raise invalid_record("Incorrect declared batch size, records still remaining in file")


# --- formats v0 and v1 ---


def _check_wrapper(batch: BatchView, rules: AppendRules, now_ms: int) -> ProducedBatch:
    earliest, latest = _timestamp_bounds(batch, rules, now_ms)
    walk = MessageWalk(batch.magic, earliest, latest, keys_required=rules.keys_required)
    rest = b""
    for piece in _decompressed(_codec_of(batch), wrapped_set(batch), batch.magic, rules):
        data = rest + piece if rest else piece
        rest = data[walk.feed(memoryview(data)) :]
    if walk.count == 0:
        raise invalid_record("Found invalid compressed record set with no inner records")
    inner_base_offset(batch, last_inner_offset=walk.last_offset)
    if walk.other_magic:
        raise _rejected(
            [
                RecordError(index, f"Record's magic does not match outer magic {batch.magic}")
                for index in walk.other_magic
            ]
        )
    _refuse_bad_records(walk, batch, walk.count, rules, now_ms)
    is_log_append_time = batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    return ProducedBatch(
        position=batch.position,
        size_bytes=batch.size_bytes,
        magic=batch.magic,
        codec=batch.codec,
        record_count=walk.count,
        max_timestamp=batch.max_timestamp if is_log_append_time else walk.max_timestamp,
        index_of_max_timestamp=0 if is_log_append_time else walk.index_of_max,
        relative_offsets_honoured=batch.magic == v1.MAGIC and walk.is_sequential,
        keyed=walk.null_keys < walk.count,
    )


def _check_messages(data: Buffer, first: BatchView, rules: AppendRules, now_ms: int) -> ProducedBatch:
    run = ProducedBatch(position=0, size_bytes=0, magic=first.magic, codec=Codec.NONE, record_count=0)
    for message in iter_batches(data):
        if message.magic != first.magic:
            raise invalid_record(
                f"Batch magic byte {message.magic} is not the same as the first batch's magic byte {first.magic}"
            )
        if message.is_compressed:
            raise invalid_record("Compressed outer record has more than one batch")
        has_key = _check_message(message, rules, now_ms)
        if message.max_timestamp > run.max_timestamp:
            run.max_timestamp, run.index_of_max_timestamp = message.max_timestamp, run.record_count
        run.keyed = run.keyed or has_key
        run.record_count += 1
        run.size_bytes = message.end
    return run


def _check_message(message: BatchView, rules: AppendRules, now_ms: int) -> bool:
    """Check one uncompressed message; returns whether it has a key."""
    position = message.position + (v0.KEY_LENGTH_AT if message.magic == v0.MAGIC else v1.KEY_LENGTH_AT)
    (key_length,) = v0.INT32.unpack_from(message.buffer, position)
    value_length_at = position + v0.INT32.size + max(key_length, 0)
    value_at = value_length_at + v0.INT32.size
    if value_at > message.end:
        raise invalid_record("Found invalid message structure: its key does not fit")
    (value_length,) = v0.INT32.unpack_from(message.buffer, value_length_at)
    # Bytes after the value are accepted, as in Kafka; every reader ignores them.
    if value_at + max(value_length, 0) > message.end:
        raise invalid_record("Found invalid message structure: its value does not fit")
    if key_length < 0 and rules.keys_required:
        raise _rejected([RecordError(0, _NO_KEY)])
    if message.magic == v1.MAGIC:
        fault = _timestamp_fault(message, message.max_timestamp, rules, now_ms)
        if fault is not None:
            raise _rejected_for_timestamps([RecordError(0, fault)])
    return bool(key_length >= 0)


# --- rules of the topic ---

_NO_KEY = "Compacted topic cannot accept message without key."


def _timestamp_bounds(batch: BatchView, rules: AppendRules, now_ms: int) -> tuple[int, int]:
    """Return the least and the largest timestamp that a record of `batch` may have."""
    if rules.timestamp_type is TimestampType.LOG_APPEND_TIME or batch.timestamp_type is not TimestampType.CREATE_TIME:
        return INT64_MIN, INT64_MAX
    return (
        max(now_ms - rules.timestamp_before_max_ms, INT64_MIN),
        min(now_ms + rules.timestamp_after_max_ms, INT64_MAX),
    )


def _timestamp_fault(batch: BatchView, timestamp: int, rules: AppendRules, now_ms: int) -> str | None:
    """Return the reason to refuse a record with `timestamp` in `batch`, or None."""
    if rules.timestamp_type is TimestampType.CREATE_TIME and timestamp != NO_TIMESTAMP:
        earliest = now_ms - rules.timestamp_before_max_ms
        latest = now_ms + rules.timestamp_after_max_ms
        if earliest <= timestamp <= latest:
            return None
        return (
            f"Timestamp {timestamp} of message is out of range. The timestamp should be within [{earliest}, {latest}]"
        )
    if batch.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return "Invalid timestamp type in message. Producer should not set timestamp type to LogAppendTime."
    return None


def _refuse_bad_records(walk: _Walk, batch: BatchView, count: int, rules: AppendRules, now_ms: int) -> None:
    """Raise RecordValidationError if the walk found records that break the topic's rules."""
    bad_timestamps = walk.bad_timestamps
    is_log_append_time = batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    if is_log_append_time and _timestamp_fault(batch, batch.max_timestamp, rules, now_ms) is not None:
        # All records have the batch's timestamp, whatever their own fields contain.
        bad_timestamps = [(index, batch.max_timestamp) for index in range(min(count, MAX_NOTED))]
    if not walk.bad_keys and not bad_timestamps:
        return
    without_key = set(walk.bad_keys)
    errors = [RecordError(index, _NO_KEY) for index in walk.bad_keys]
    for index, timestamp in bad_timestamps:
        if index not in without_key:
            errors.append(RecordError(index, _timestamp_fault(batch, timestamp, rules, now_ms) or ""))
    errors.sort()
    if len(errors) > len(without_key):
        raise _rejected_for_timestamps(errors)
    raise _rejected(errors)


def _rejected(errors: list[RecordError]) -> RecordValidationError:
    return RecordValidationError(
        ErrorCode.INVALID_RECORD,
        f"One or more records have been rejected due to {len(errors)} record errors in total, and only showing the "
        f"first three errors at most: {[f'{error.batch_index}: {error.message}' for error in errors[:3]]}",
        errors,
    )


def _rejected_for_timestamps(errors: list[RecordError]) -> RecordValidationError:
    return RecordValidationError(
        ErrorCode.INVALID_TIMESTAMP, "One or more records have been rejected due to invalid timestamp", errors
    )
