"""Conversion between record formats, batch by batch, for clients that cannot read the stored format.

Down-conversion (v2 to v1 or v0, v1 to v0) follows Kafka `RecordsUtil.downConvert`: offsets and gaps are kept; headers,
producer and transaction fields and control batches are dropped; zstd is refused; batches of the requested format or an
older one are copied. One compressed batch becomes one wrapper of the same codec. Wrappers whose inner offsets are not
valid, which Kafka's log never has, get valid ones (see ``batches``).

Up-conversion (v0 and v1 to v2) merges consecutive uncompressed messages into batches of bounded size; one wrapper
becomes one batch of the same codec. v2 batches are copied.

At most one batch is in memory; decompression has a limit.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ..errors import BrokerError, ErrorCode
from . import kernel_cy, up_kernel_cy, v0, v1, v2
from .batches import BatchView, complete_batch_at, iter_records
from .compression import DEFAULT_LIMIT_BYTES, Codec, compress_pieces, decompressed_pieces
from .kernel_cy import Stop
from .large_message import large_message
from .recompression_cy import Recompression
from .record import NO_TIMESTAMP, Record, TimestampType

MERGED_BATCH_BYTES = 16 * 1024
"""The size of batches from up-conversion: the default of a Kafka producer's batch.size."""

RECOMPRESSED_PIECE_BYTES = 64 * 1024
"""The number of bytes converted between two calls of a compressor: lz4's block size."""

ALL_OFFSETS = -(2**63)
"""A first offset that excludes no record."""

MAX_OFFSET_DELTA = 2**31 - 1
"""The largest offset delta of a v2 batch, an int32."""


@dataclass(frozen=True, slots=True)
class Converted:
    """The result for one batch: bytes in the requested format, and the number of converted records (0: a copy).

    `written_bytes` are the bytes of the records in the requested format before their compression.
    """

    data: bytes | bytearray | memoryview
    record_count: int
    written_bytes: int = 0


def down_convert(
    batches: Iterable[BatchView], to_magic: int, first_offset: int, *, limit_bytes: int = DEFAULT_LIMIT_BYTES
) -> Iterator[Converted]:
    """Convert batches to format `to_magic` (0 or 1); batches without a result are skipped.

    Records below `first_offset` are excluded from uncompressed batches that change format, not from others.
    Raises BrokerError: UNSUPPORTED_COMPRESSION_TYPE for zstd, CORRUPT_MESSAGE for a batch that cannot be decoded or
    inflates beyond `limit_bytes`, UNKNOWN_SERVER_ERROR for timestamps below -1 (as Kafka).
    """
    for batch in batches:
        converted = down_convert_batch(batch, to_magic, first_offset, limit_bytes=limit_bytes)
        if converted.data:
            yield converted


def down_convert_batch(
    batch: BatchView, to_magic: int, first_offset: int, *, limit_bytes: int = DEFAULT_LIMIT_BYTES
) -> Converted:
    """Convert one batch; the result is empty if no record of it remains. Raises as `down_convert`."""
    stored = batch.view
    conversion = kernel_cy.DownConversion(to_magic, first_offset)
    size_bytes = conversion.measure_batch(stored, len(stored))
    if conversion.stop == Stop.NEEDS_CODEC:
        return convert_with_codec(batch, to_magic, limit_bytes=limit_bytes)
    if conversion.stop not in (Stop.BATCH_DONE, Stop.AT_END):
        raise conversion_error(conversion)
    return _fill_exactly(kernel_cy.DownConversion(to_magic, first_offset), stored, size_bytes)


def up_convert(
    stored: memoryview,
    first_offset: int,
    *,
    batch_bytes: int = MERGED_BATCH_BYTES,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
) -> Iterator[Converted]:
    """Convert the batches of `stored` to format v2, without the uncompressed messages below `first_offset`.

    A merged batch has at most `batch_bytes` unless one message alone is larger. Raises BrokerError CORRUPT_MESSAGE for
    bytes that break their format or inflate beyond `limit_bytes`.
    """
    conversion = up_kernel_cy.UpConversion(first_offset, batch_bytes)
    while True:
        begin = conversion.position
        size_bytes = conversion.measure_batch(stored, len(stored))
        if conversion.stop == Stop.BATCH_DONE:
            out = bytearray(size_bytes)
            again = up_kernel_cy.UpConversion(first_offset, batch_bytes, begin)
            again.fill(stored, conversion.position, memoryview(out))
            yield Converted(out, again.converted_count)
        elif conversion.stop == Stop.NEEDS_CODEC:
            batch = complete_batch_at(stored, conversion.position)
            conversion.skip_batch(stored)
            yield convert_with_codec(batch, v2.MAGIC, limit_bytes=limit_bytes)
        elif conversion.stop == Stop.AT_END:
            return
        else:
            raise conversion_error(conversion)


def convert_with_codec(
    batch: BatchView,
    to_magic: int,
    *,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
    receipt_ms: int = NO_TIMESTAMP,
    zstd_codec: Codec | None = None,
) -> Converted:
    """Convert a whole compressed batch to format `to_magic`, or give a v0 or v1 wrapper valid inner offsets.

    Records of v0 get `receipt_ms` as their log append time. Raises as `down_convert`, `up_convert`.
    Records of zstd are compressed by ``zstd_codec`` instead, which old clients read; without it they are refused.
    """
    try:
        if batch.magic == v2.MAGIC:
            if to_magic == v2.MAGIC:
                return _recompress_v2(batch, limit_bytes, zstd_codec)
            return _convert_compressed_v2(batch, to_magic, limit_bytes, zstd_codec)
        records, timestamp_type = _timed_records(batch, limit_bytes, receipt_ms)
        if to_magic == v2.MAGIC:
            return _convert_wrapper_up(batch, records, timestamp_type)
        return _convert_wrapper(batch, records, timestamp_type, to_magic)
    except BrokerError as fault:
        if fault.code in (ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE):
            # Old consumers know no other error code for records that they cannot read.
            raise BrokerError(ErrorCode.CORRUPT_MESSAGE, fault.message) from fault
        raise


def conversion_error(conversion: kernel_cy.DownConversion | up_kernel_cy.UpConversion) -> BrokerError:
    """Build the error for a conversion that stopped at a fault."""
    if conversion.stop == Stop.BAD_TIMESTAMP:
        return _bad_timestamp(conversion.timestamp)
    return structure_error(conversion.position)


def structure_error(position: int) -> BrokerError:
    """Build the error for stored bytes at `position` that break their format."""
    return BrokerError(ErrorCode.CORRUPT_MESSAGE, f"Found invalid record structure at byte {position}")


def zstd_error() -> BrokerError:
    """Build the error for zstd batches in a Fetch of a client without zstd (KIP-110)."""
    return BrokerError(
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "Down-conversion of zstandard-compressed batches is not supported"
    )


def _bad_timestamp(timestamp: int) -> BrokerError:
    return BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Invalid negative timestamp {timestamp}")


def _replaced_codec(batch: BatchView, zstd_codec: Codec | None) -> Codec:
    """Return the codec of a batch for a client that does not read zstd. Raises BrokerError as `down_convert`."""
    if batch.codec is not Codec.ZSTD:
        return batch.codec
    if zstd_codec is None:
        raise zstd_error()
    return zstd_codec


def _recompress_v2(batch: BatchView, limit_bytes: int, zstd_codec: Codec | None) -> Converted:
    """Compress the records of a v2 batch by another codec; all else, offsets and producer included, stays."""
    codec = _replaced_codec(batch, zstd_codec)
    stored = batch.view[v2.RECORDS_AT :]
    if not stored:
        # Compaction leaves headers without records, which have no compressed bytes.
        return Converted(v2.with_body(batch.view, b"", Codec.NONE), 0)
    pieces = decompressed_pieces(batch.codec, stored, magic=v2.MAGIC, limit_bytes=limit_bytes)
    body = compress_pieces(codec, pieces, magic=v2.MAGIC, is_for_transit=True)
    return Converted(v2.with_body(batch.view, body, codec), batch.record_count or 0)


def _convert_compressed_v2(batch: BatchView, to_magic: int, limit_bytes: int, zstd_codec: Codec | None) -> Converted:
    codec = _replaced_codec(batch, zstd_codec)
    count = batch.record_count or 0
    if count == 0:
        return Converted(b"", 0)
    if count < 0 or batch.stored_offset < 0:
        raise BrokerError(ErrorCode.CORRUPT_MESSAGE, f"Invalid header of {batch}")
    if codec is batch.codec and (converted := _convert_in_one_step(batch, to_magic, limit_bytes)):
        return converted
    body = _inflated(batch, limit_bytes)
    first = _open_records(batch, body, to_magic, 0)
    if not first.read_record(body):
        raise BrokerError(ErrorCode.CORRUPT_MESSAGE, f"Found invalid record structure in {batch}")
    inner_base_offset = first.offset if to_magic == v1.MAGIC else 0
    conversion = _open_records(batch, body, to_magic, inner_base_offset)
    inner = _Written(_inner_messages(conversion, body))
    compressed = compress_pieces(codec, inner, magic=to_magic, is_for_transit=codec is not batch.codec)
    attributes = codec | conversion.attributes
    wrapper = (
        v0.build_message(conversion.offset, None, compressed, attributes=attributes)
        if to_magic == v0.MAGIC
        else v1.build_message(conversion.offset, conversion.max_timestamp, None, compressed, attributes=attributes)
    )
    return Converted(wrapper, count, inner.size_bytes)


_idle_recompressions: list[Recompression] = []
"""The unused recompressions: each has buffers and serves one thread at a time."""


def _convert_in_one_step(batch: BatchView, to_magic: int, limit_bytes: int) -> Converted | None:
    """Convert a compressed v2 batch as most are; return None for one that has to be converted in pieces."""
    recompression = _idle_recompressions.pop() if _idle_recompressions else Recompression()
    wrapper = recompression.convert(batch.view, to_magic, limit_bytes)
    written_bytes = recompression.written_bytes
    _idle_recompressions.append(recompression)
    return Converted(wrapper, batch.record_count or 0, written_bytes) if wrapper else None


def _inflated(batch: BatchView, limit_bytes: int) -> memoryview:
    """Decompress the records of a v2 batch into one buffer, without a second copy."""
    body = bytearray()
    for piece in decompressed_pieces(batch.codec, batch.view[v2.RECORDS_AT :], magic=v2.MAGIC, limit_bytes=limit_bytes):
        body += piece
    return memoryview(body)


def messages_of(
    batch: BatchView, to_magic: int, first_offset: int, most_bytes: int, *, limit_bytes: int = DEFAULT_LIMIT_BYTES
) -> Converted:
    """Convert a compressed v2 batch to messages without a wrapper, from `first_offset` on.

    The messages end after `most_bytes`, if necessary inside a message, since clients ignore a partial message. Raises
    as `down_convert`.
    """
    body = _inflated(batch, limit_bytes)
    conversion = _open_records(batch, body, to_magic, 0, first_offset)
    messages = bytearray()
    for piece in _inner_messages(conversion, body):
        messages += piece[: most_bytes - len(messages)]
        if len(messages) == most_bytes:
            break
    return Converted(messages, conversion.converted_count, len(messages))


def _inner_messages(conversion: kernel_cy.DownConversion, body: memoryview) -> Iterator[memoryview]:
    """Convert decompressed records a buffer at a time: small records take several times more bytes as messages."""
    out = memoryview(bytearray(RECOMPRESSED_PIECE_BYTES))
    while True:
        filled = conversion.fill(body, len(body), out)
        stop = conversion.stop
        if filled:
            yield out[:filled]
        elif stop == Stop.OUT_IS_FULL:
            yield from large_message(conversion, body)
        if stop == Stop.AT_END:
            return
        if stop != Stop.OUT_IS_FULL:
            raise conversion_error(conversion)


def _open_records(
    batch: BatchView, body: memoryview, to_magic: int, inner_base_offset: int, first_offset: int = ALL_OFFSETS
) -> kernel_cy.DownConversion:
    conversion = kernel_cy.DownConversion(to_magic, first_offset)
    conversion.open_records(
        batch.record_count or 0,
        len(body),
        batch.stored_offset,
        batch.base_timestamp,
        batch.max_timestamp,
        batch.timestamp_type is TimestampType.LOG_APPEND_TIME,
        inner_base_offset,
    )
    return conversion


def _fill_exactly(conversion: kernel_cy.DownConversion, stored: memoryview, size_bytes: int) -> Converted:
    out = bytearray(size_bytes)
    conversion.fill(stored, len(stored), memoryview(out))
    return Converted(out, conversion.converted_count)


def _timed_records(batch: BatchView, limit_bytes: int, receipt_ms: int) -> tuple[Iterator[Record], TimestampType]:
    """Return the records of a v0 or v1 batch with their timestamps, and the timestamp type."""
    records = iter_records(batch, limit_bytes=limit_bytes)
    if batch.magic == v0.MAGIC and receipt_ms != NO_TIMESTAMP:
        return (record._replace(timestamp=receipt_ms) for record in records), TimestampType.LOG_APPEND_TIME
    is_log_append_time = batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    return records, TimestampType.LOG_APPEND_TIME if is_log_append_time else TimestampType.CREATE_TIME


class _Written:
    """An iterator over pieces for a compressor that counts their bytes."""

    def __init__(self, pieces: Iterator[memoryview]) -> None:
        self._pieces = pieces
        self.size_bytes = 0

    def __iter__(self) -> Iterator[memoryview]:
        for piece in self._pieces:
            self.size_bytes += len(piece)
            yield piece


class _RecordRun:
    """Records that are encoded one after the other, and the facts about them in their wrapper or batch."""

    def __init__(self, records: Iterator[Record]) -> None:
        self._records = records
        self.first = self.last = next(records)
        self.max_timestamp = self.first.timestamp
        self.count = 0
        self.size_bytes = 0

    def pieces(self, append: Callable[[bytearray, Record], None]) -> Iterator[bytes]:
        """Return ``append``'s output for the records, in pieces for a compressor; no list of the records is made."""
        encoded = bytearray()
        for record in itertools.chain((self.first,), self._records):
            append(encoded, record)
            self.last = record
            self.count += 1
            self.max_timestamp = max(self.max_timestamp, record.timestamp)
            while len(encoded) >= RECOMPRESSED_PIECE_BYTES:
                self.size_bytes += RECOMPRESSED_PIECE_BYTES
                yield bytes(encoded[:RECOMPRESSED_PIECE_BYTES])
                del encoded[:RECOMPRESSED_PIECE_BYTES]
        self.size_bytes += len(encoded)
        if encoded:
            yield bytes(encoded)


def _convert_wrapper(
    batch: BatchView, records: Iterator[Record], timestamp_type: TimestampType, to_magic: int
) -> Converted:
    """Convert a v0 or v1 batch to format v0 or v1, with the offsets inside a wrapper that readers expect."""
    run = _RecordRun(records)
    is_log_append_time = timestamp_type is TimestampType.LOG_APPEND_TIME
    becomes_v0 = to_magic == v0.MAGIC or (batch.magic == v0.MAGIC and not is_log_append_time)
    magic = v0.MAGIC if becomes_v0 else v1.MAGIC
    flags = v1.LOG_APPEND_TIME_FLAG if is_log_append_time and not becomes_v0 else 0
    first_offset = run.first.offset if magic == v1.MAGIC and batch.is_compressed else 0

    def append(encoded: bytearray, record: Record) -> None:
        if record.timestamp < NO_TIMESTAMP:
            raise _bad_timestamp(record.timestamp)
        if becomes_v0:
            encoded += v0.build_message(record.offset, record.key, record.value)
        else:
            offset = record.offset - first_offset
            encoded += v1.build_message(offset, record.timestamp, record.key, record.value, attributes=flags)

    value = compress_pieces(batch.codec, run.pieces(append), magic=magic)
    if not batch.is_compressed:
        return Converted(value, run.count, run.size_bytes)
    attributes = int(batch.codec) | flags
    wrapper = (
        v0.build_message(run.last.offset, None, value, attributes=attributes)
        if becomes_v0
        else v1.build_message(run.last.offset, run.max_timestamp, None, value, attributes=attributes)
    )
    return Converted(wrapper, run.count, run.size_bytes)


def _convert_wrapper_up(batch: BatchView, records: Iterator[Record], timestamp_type: TimestampType) -> Converted:
    """Convert a v0 or v1 wrapper to one v2 batch of the same codec. Invalid timestamps below -1 become -1."""
    run = _RecordRun(
        record if record.timestamp >= NO_TIMESTAMP else record._replace(timestamp=NO_TIMESTAMP) for record in records
    )
    base_offset, base_timestamp = run.first.offset, run.first.timestamp

    def append(encoded: bytearray, record: Record) -> None:
        v2.append_record(encoded, record, base_offset=base_offset, base_timestamp=base_timestamp)

    body = compress_pieces(batch.codec, run.pieces(append), magic=v2.MAGIC, is_for_transit=True)
    last_offset = run.last.offset
    if base_offset < 0 or not 0 <= last_offset - base_offset <= MAX_OFFSET_DELTA:
        raise BrokerError(ErrorCode.CORRUPT_MESSAGE, f"Records {base_offset} to {last_offset} cannot be one batch")
    data = v2.assemble_batch(
        body,
        record_count=run.count,
        base_offset=base_offset,
        last_offset=last_offset,
        attributes=v2.attributes_of(batch.codec, timestamp_type),
        base_timestamp=base_timestamp,
        max_timestamp=run.max_timestamp,
    )
    return Converted(data, run.count, run.size_bytes)
