"""A fast check of the most common payload: one valid v2 batch.

The batch may be compressed if its check takes little time.

A batch that `check_plain_batch` accepts is one that `validation.validate` accepts with the same result; for all other
payloads only `validation.validate` decides. This is ordinary Python that is also compiled: ``plain_batch_cy.pxd`` has
the C types.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from . import cython_stand_in as cython

from ..errors import BrokerError
from . import v2
from .compression import CODECS, Codec, decompressed_pieces
from .record import TimestampType
from .validation import AppendRules, walk_records

if not cython.compiled:
    from .checksum_libraries import crc32c_of
    from .message_bytes import int16_at, int32_at, int64_at, uint32_at
    from .produced_cy import ProducedBatch
    from .walk_cy import RecordWalk

COMPRESSED_LIMIT_BYTES = 64 * 1024
"""The largest compressed batch that is checked in the event loop's thread."""
INFLATED_LIMIT_BYTES = 1024 * 1024
"""The largest decompressed size that is checked in the event loop's thread."""

CREATE_TIME = TimestampType.CREATE_TIME

# The layout of `v2.py` and the bounds of an int64, in variables of which the .pxd declares the C types.
_LENGTH_AT = v2.LENGTH_AT
_MAGIC_AT = v2.MAGIC_AT
_CRC_AT = v2.CRC_AT
_ATTRIBUTES_AT = v2.ATTRIBUTES_AT
_LAST_OFFSET_DELTA_AT = v2.LAST_OFFSET_DELTA_AT
_BASE_TIMESTAMP_AT = v2.BASE_TIMESTAMP_AT
_PRODUCER_ID_AT = v2.PRODUCER_ID_AT
_PRODUCER_EPOCH_AT = v2.PRODUCER_EPOCH_AT
_BASE_SEQUENCE_AT = v2.BASE_SEQUENCE_AT
_RECORD_COUNT_AT = v2.RECORD_COUNT_AT
_RECORDS_AT = v2.RECORDS_AT
_LOG_OVERHEAD = v2.MAGIC_AT - 4
_COMPRESSED_LIMIT_BYTES = COMPRESSED_LIMIT_BYTES
_MAX_INT64 = 0x7FFFFFFFFFFFFFFF


def check_plain_batch(
    data: memoryview, rules: AppendRules, now_ms: int, newest_codec: Codec = Codec.ZSTD
) -> ProducedBatch | None:
    """Check ``data`` as one batch and describe it; return None where `validation.validate` must decide.

    `validation.validate` also decides on batches of a codec beyond ``newest_codec``.
    """
    size_bytes = len(data)
    if size_bytes <= _RECORDS_AT or size_bytes > rules.max_message_bytes:
        return None
    earliest = -_MAX_INT64 - 1
    latest = _MAX_INT64
    if rules.timestamp_type is CREATE_TIME:
        # Differences beyond an int64 leave the bound where it is.
        before_ms = rules.timestamp_before_max_ms
        after_ms = rules.timestamp_after_max_ms
        if now_ms >= 0 or before_ms <= now_ms + _MAX_INT64:
            earliest = now_ms - before_ms
        if now_ms < 0 or after_ms < _MAX_INT64 - now_ms:
            latest = now_ms + after_ms
    return _checked(data, rules, earliest, latest, newest_codec)


def _checked(
    data: memoryview, rules: AppendRules, earliest: int, latest: int, newest_codec: int
) -> ProducedBatch | None:
    """Check ``data``, which is longer than a header."""
    header = cython.address(data[0]) if cython.compiled else data
    size_bytes = len(data)
    attributes = int16_at(header, _ATTRIBUTES_AT)
    count = int32_at(header, _RECORD_COUNT_AT)
    producer_id = int64_at(header, _PRODUCER_ID_AT)
    base_sequence = int32_at(header, _BASE_SEQUENCE_AT)
    if (
        int64_at(header, 0) != 0
        or int32_at(header, _LENGTH_AT) != size_bytes - _LOG_OVERHEAD
        or header[_MAGIC_AT] != 2
        or attributes < 0
        or attributes > newest_codec
        or (attributes != 0 and size_bytes > _COMPRESSED_LIMIT_BYTES)
        or count <= 0
        or int32_at(header, _LAST_OFFSET_DELTA_AT) != count - 1
        or (producer_id >= 0 and base_sequence < 0)
        or crc32c_of(header, _ATTRIBUTES_AT, size_bytes) != uint32_at(header, _CRC_AT)
    ):
        return None
    base_timestamp = int64_at(header, _BASE_TIMESTAMP_AT)
    walk = RecordWalk(count, base_timestamp, earliest, latest, rules.keys_required)
    try:
        if attributes == 0:
            is_good = walk.feed(data[_RECORDS_AT:]) == size_bytes - _RECORDS_AT and walk.is_finished()
        else:
            limit_bytes = min(INFLATED_LIMIT_BYTES, rules.limit_bytes)
            walk_records(
                walk, decompressed_pieces(CODECS[attributes], memoryview(data[_RECORDS_AT:]), limit_bytes=limit_bytes)
            )
            is_good = walk.is_sequential
    except (ValueError, BrokerError):
        return None
    if not is_good or walk.bad_timestamps or walk.bad_keys:
        return None
    # Arguments of the constructor would be Python objects.
    batch = ProducedBatch.__new__(ProducedBatch)
    batch.position = 0
    batch.size_bytes = size_bytes
    batch.magic = 2
    batch.codec = CODECS[attributes]
    batch.record_count = count
    batch.max_timestamp = walk.max_timestamp
    batch.index_of_max_timestamp = walk.index_of_max
    batch.relative_offsets_honoured = True
    batch.keyed = walk.null_keys < count
    batch.is_transactional = batch.is_control = False
    batch.producer_id = producer_id
    batch.producer_epoch = int16_at(header, _PRODUCER_EPOCH_AT)
    batch.base_sequence = base_sequence
    batch.base_offset = batch.last_offset = -1
    return batch
