"""Give a log's offsets to what was produced, in place and without recompression.

What each format needs patched (Kafka `LogValidator` and the batches' `setLastOffset`, `setMaxTimestamp`,
`setPartitionLeaderEpoch`; where Kafka would build the batch anew, it is marked instead, see `batches`):

    v2                 base offset and leader epoch, both outside the CRC
    v0, v1 message     its offset, outside the CRC
    v0, v1 wrapper     its offset, the last record's; v0.NUMBERED_BY_INDEX_FLAG if the inner offsets mislead (new CRC)
    v1 and v2          time stamp type and largest time stamp, where the header has others than it should (new CRC)
"""

from __future__ import annotations

from struct import Struct

from . import v0, v1, v2
from .compression import Codec
from .produced import Produced, ProducedBatch
from .record import NO_TIMESTAMP, TimestampType

INT16 = Struct(">h")
INT32 = Struct(">i")
INT64 = Struct(">q")


def assign_offsets(
    produced: Produced, base_offset: int, *, leader_epoch: int, log_append_time_ms: int | None = None
) -> int:
    """Number the records of `produced` from `base_offset` on; returns the last offset (`base_offset` - 1 for none).

    `log_append_time_ms` is the time to stamp on topics with message.timestamp.type=LogAppendTime, None on others.
    Patches `produced.data` (which is copied first if it is read-only) and fills in the batches' offsets.
    """
    data = produced.writable_data()
    next_offset = base_offset
    for batch in produced.batches:
        batch.base_offset = next_offset
        next_offset += batch.record_count
        batch.last_offset = next_offset - 1
        if log_append_time_ms is not None and batch.magic != v0.MAGIC:
            batch.max_timestamp = log_append_time_ms
            batch.index_of_max_timestamp = 0
        if batch.magic == v2.MAGIC:
            _patch_v2_batch(data, batch, leader_epoch, log_append_time_ms)
        elif batch.codec is Codec.NONE:
            _patch_messages(data, batch, log_append_time_ms)
        else:
            _patch_wrapper(data, batch, log_append_time_ms)
    return next_offset - 1


def _wanted_type(log_append_time_ms: int | None) -> TimestampType:
    return TimestampType.CREATE_TIME if log_append_time_ms is None else TimestampType.LOG_APPEND_TIME


def _patch_v2_batch(data: memoryview, batch: ProducedBatch, leader_epoch: int, log_append_time_ms: int | None) -> None:
    position = batch.position
    INT64.pack_into(data, position + v2.BASE_OFFSET_AT, batch.base_offset)
    INT32.pack_into(data, position + v2.LEADER_EPOCH_AT, leader_epoch)
    (attributes,) = INT16.unpack_from(data, position + v2.ATTRIBUTES_AT)
    (max_timestamp,) = INT64.unpack_from(data, position + v2.MAX_TIMESTAMP_AT)
    wanted_type = _wanted_type(log_append_time_ms)
    has_flag = attributes & v2.LOG_APPEND_TIME_FLAG != 0
    if has_flag == (wanted_type is TimestampType.LOG_APPEND_TIME) and max_timestamp == batch.max_timestamp:
        return
    # As Kafka: attributes are composed anew here, so unknown bits of the producer's go.
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
    """Make type and time stamp of a message the topic's; `create_time` None keeps its own, if that is one."""
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
