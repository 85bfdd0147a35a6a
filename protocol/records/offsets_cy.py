"""Assignment of a log's offsets to produced batches, in place and without recompression.

The patched fields of each format (Kafka `LogValidator` and the batches' `setLastOffset`, `setMaxTimestamp`,
`setPartitionLeaderEpoch`; a batch that Kafka would rebuild is marked instead, see `batches`):

    v2                 base offset and leader epoch, both outside the CRC
    v0, v1 message     its offset, outside the CRC
    v0, v1 wrapper     its offset, the last record's; v0.NUMBERED_BY_INDEX_FLAG for invalid inner offsets (new CRC)
    v1 and v2          timestamp type and largest timestamp, if the header has wrong ones (new CRC)

This is ordinary Python that is also compiled: ``offsets_cy.pxd`` has the C types.
"""

from __future__ import annotations

from struct import Struct

try:
    import cython
except ImportError:
    from . import cython_stand_in as cython

from . import v0, v1, v2
from .compression import Codec
from .record import NO_TIMESTAMP, TimestampType

if not cython.compiled:
    from .message_bytes import int16_at, int64_at, put_int32, put_int64
    from .produced_cy import Produced, ProducedBatch

INT16 = Struct(">h")
INT32 = Struct(">i")
INT64 = Struct(">q")

# Copies of constants of which the .pxd declares the C types.
_LEADER_EPOCH_AT = v2.LEADER_EPOCH_AT
_ATTRIBUTES_AT = v2.ATTRIBUTES_AT
_MAX_TIMESTAMP_AT = v2.MAX_TIMESTAMP_AT
_LOG_APPEND_TIME_FLAG = v2.LOG_APPEND_TIME_FLAG


def assign_offsets(
    produced: Produced, base_offset: int, leader_epoch: int, log_append_time_ms: int | None = None
) -> int:
    """Assign offsets from `base_offset` on to the records; return the last one (`base_offset` - 1 without records).

    `log_append_time_ms` is the timestamp for topics with message.timestamp.type=LogAppendTime, None for others.
    Patches `produced.data` (which is copied first if it is read-only) and sets the offsets in `produced.batches`.
    """
    data = produced.writable_data()
    next_offset = base_offset
    for batch in produced.batches:
        magic = batch.magic
        batch.base_offset = next_offset
        last_offset = next_offset + batch.record_count - 1
        batch.last_offset = last_offset
        if log_append_time_ms is not None and magic != 0:
            batch.max_timestamp = log_append_time_ms
            batch.index_of_max_timestamp = 0
        if magic == 2:
            has_append_time = log_append_time_ms is not None
            timestamp = batch.max_timestamp
            is_right = _place_v2_batch(data, batch.position, next_offset, leader_epoch, timestamp, has_append_time)
            if not is_right:
                _patch_v2_timestamps(data, batch, log_append_time_ms)
        elif batch.codec is Codec.NONE:
            _patch_messages(data, batch, log_append_time_ms)
        else:
            _patch_wrapper(data, batch, log_append_time_ms)
        next_offset = last_offset + 1
    return next_offset - 1


def _place_v2_batch(
    data: memoryview, position: int, base_offset: int, leader_epoch: int, max_timestamp: int, is_append_time: bool
) -> bool:
    """Set the fields outside the CRC; return whether the timestamp type and the largest timestamp are right."""
    header = cython.address(data[0]) if cython.compiled else data
    put_int64(header, position, base_offset)
    put_int32(header, position + _LEADER_EPOCH_AT, leader_epoch)
    flag = int16_at(header, position + _ATTRIBUTES_AT) & _LOG_APPEND_TIME_FLAG
    return (flag != 0) == is_append_time and int64_at(header, position + _MAX_TIMESTAMP_AT) == max_timestamp


def _patch_v2_timestamps(data: memoryview, batch: ProducedBatch, log_append_time_ms: int | None) -> None:
    position = batch.position
    (attributes,) = INT16.unpack_from(data, position + v2.ATTRIBUTES_AT)
    has_create_time = log_append_time_ms is None
    wanted_type = TimestampType.CREATE_TIME if has_create_time else TimestampType.LOG_APPEND_TIME
    # As in Kafka, the attributes are composed here, so unknown bits from the producer are dropped.
    attributes = v2.attributes_of(
        batch.codec, wanted_type, is_transactional=batch.is_transactional, is_control=batch.is_control
    ) | (attributes & v2.DELETE_HORIZON_FLAG)
    INT16.pack_into(data, position + v2.ATTRIBUTES_AT, attributes)
    INT64.pack_into(data, position + v2.MAX_TIMESTAMP_AT, batch.max_timestamp)
    v2.UINT32.pack_into(data, position + v2.CRC_AT, v2.batch_crc(data, position, batch.size_bytes))


def _patch_messages(data: memoryview, run: ProducedBatch, log_append_time_ms: int | None) -> None:
    position = run.position
    for offset in range(run.base_offset, run.last_offset + 1):
        INT64.pack_into(data, position + v0.OFFSET_AT, offset)
        (size,) = INT32.unpack_from(data, position + v0.SIZE_AT)
        if run.magic == v1.MAGIC:
            _patch_v1_timestamp(data, position, v0.LOG_OVERHEAD + size, None, log_append_time_ms)
        position += v0.LOG_OVERHEAD + size


def _patch_wrapper(data: memoryview, batch: ProducedBatch, log_append_time_ms: int | None) -> None:
    position = batch.position
    INT64.pack_into(data, position + v0.OFFSET_AT, batch.last_offset)
    if batch.magic == v1.MAGIC:
        _patch_v1_timestamp(data, position, batch.size_bytes, batch.max_timestamp, log_append_time_ms)
    if not batch.relative_offsets_honoured:
        data[position + v0.ATTRIBUTES_AT] |= v0.NUMBERED_BY_INDEX_FLAG
        v0.UINT32.pack_into(data, position + v0.CRC_AT, v0.message_crc(data, position, batch.size_bytes))


def _patch_v1_timestamp(
    data: memoryview, position: int, size_bytes: int, create_time: int | None, log_append_time_ms: int | None
) -> None:
    """Set a message's timestamp type and timestamp; with `create_time` None it keeps its own timestamp, if valid."""
    attributes = data[position + v1.ATTRIBUTES_AT]
    (timestamp,) = INT64.unpack_from(data, position + v1.TIMESTAMP_AT)
    wanted = max(timestamp, NO_TIMESTAMP) if create_time is None else create_time
    wanted_flag = 0
    if log_append_time_ms is not None:
        wanted, wanted_flag = log_append_time_ms, v1.LOG_APPEND_TIME_FLAG
    if attributes & v1.LOG_APPEND_TIME_FLAG == wanted_flag and timestamp == wanted:
        return
    data[position + v1.ATTRIBUTES_AT] = attributes & v1.CODEC_MASK | wanted_flag
    INT64.pack_into(data, position + v1.TIMESTAMP_AT, wanted)
    v0.UINT32.pack_into(data, position + v0.CRC_AT, v0.message_crc(data, position, size_bytes))
