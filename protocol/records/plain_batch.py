"""The payload that carries nearly all traffic, checked in one go: one v2 batch with nothing wrong.

It may be compressed if that takes little time.

What `check_plain_batch` passes, `validation.validate` passes with the same facts; about all else it has no opinion.
"""

from __future__ import annotations

from ..errors import BrokerError
from . import v2
from .batches import LOG_OVERHEAD
from .compression import CODECS, Codec, decompressed_pieces
from .produced import ProducedBatch
from .record import TimestampType
from .validation import INT64_MAX, INT64_MIN, AppendRules, walk_records
from .walk_cy import RecordWalk

COMPRESSED_LIMIT_BYTES = 64 * 1024
"""Larger compressed batches are not for a thread in which others wait."""
INFLATED_LIMIT_BYTES = 1024 * 1024
"""Nor are those that turn out to be larger."""


def check_plain_batch(
    data: memoryview, rules: AppendRules, *, now_ms: int, newest_codec: Codec = Codec.ZSTD
) -> ProducedBatch | None:
    """Check ``data`` as one batch and describe it; return None where `validation.validate` must decide.

    `validation.validate` also decides on batches of a codec beyond ``newest_codec``.
    """
    size_bytes = len(data)
    if not v2.HEADER_SIZE < size_bytes <= rules.max_message_bytes:
        return None
    (
        base_offset,
        size,
        _,
        magic,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp,
        _,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    ) = v2.HEADER.unpack_from(data)
    if (
        base_offset != 0
        or size + LOG_OVERHEAD != size_bytes
        or magic != v2.MAGIC
        or not 0 <= attributes <= newest_codec
        or (attributes and size_bytes > COMPRESSED_LIMIT_BYTES)
        or count <= 0
        or last_offset_delta != count - 1
        or (producer_id >= 0 and base_sequence < 0)
        or v2.batch_crc(data, 0, size_bytes) != crc
    ):
        return None
    earliest, latest = INT64_MIN, INT64_MAX
    if rules.timestamp_type is TimestampType.CREATE_TIME:
        earliest = max(now_ms - rules.timestamp_before_max_ms, INT64_MIN)
        latest = min(now_ms + rules.timestamp_after_max_ms, INT64_MAX)
    walk = RecordWalk(count, base_timestamp, earliest, latest, rules.keys_required)
    codec = CODECS[attributes]
    records = data[v2.RECORDS_AT :]
    try:
        if codec is Codec.NONE:
            is_good = walk.feed(records) == len(records) and walk.is_finished()
        else:
            limit_bytes = min(INFLATED_LIMIT_BYTES, rules.limit_bytes)
            walk_records(walk, decompressed_pieces(codec, records, limit_bytes=limit_bytes))
            is_good = walk.is_sequential
    except (ValueError, BrokerError):
        return None
    if not is_good or walk.bad_timestamps or walk.bad_keys:
        return None
    return ProducedBatch(
        0,  # position
        size_bytes,
        v2.MAGIC,
        codec,
        count,
        walk.max_timestamp,
        walk.index_of_max,
        True,  # relative_offsets_honoured
        walk.null_keys < count,
        False,  # is_transactional
        False,  # is_control
        producer_id,
        producer_epoch,
        base_sequence,
    )
