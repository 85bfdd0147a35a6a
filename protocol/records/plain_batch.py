"""The payload that carries nearly all traffic, checked in one go: one uncompressed v2 batch with nothing wrong.

What `check_plain_batch` passes, `validation.validate` passes with the same facts; about all else it has no opinion.
"""

from __future__ import annotations

from . import v2
from .batches import LOG_OVERHEAD
from .compression import Codec
from .produced import ProducedBatch
from .record import TimestampType
from .validation import INT64_MAX, INT64_MIN, AppendRules
from .walk_cy import RecordWalk


def check_plain_batch(data: memoryview, rules: AppendRules, *, now_ms: int) -> ProducedBatch | None:
    """The facts of the one batch that ``data`` is, or None where it takes `validation.validate` to judge."""
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
        or attributes != 0
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
    records = data[v2.RECORDS_AT :]
    try:
        walked_bytes = walk.feed(records)
    except ValueError:
        return None
    if walked_bytes != len(records) or not walk.is_finished() or walk.bad_timestamps or walk.bad_keys:
        return None
    return ProducedBatch(
        0,
        size_bytes,
        v2.MAGIC,
        Codec.NONE,
        count,
        walk.max_timestamp,
        walk.index_of_max,
        True,
        walk.null_keys < count,
        False,
        False,
        producer_id,
        producer_epoch,
        base_sequence,
    )
