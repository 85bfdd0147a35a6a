"""The enriched metadata (see `protocol.records.enriched`) of a stored batch, from the index, its header, or defaults.

The index has only facts that cost a decompression or are not in the batch: receipt times, the number of messages in a
v0 or v1 wrapper, and whether a compressed batch has keys.
"""

from __future__ import annotations

from ...protocol.records import v0, v2
from ...protocol.records.batches import BatchView
from ...protocol.records.enriched import KafkaTags
from ..log.segment import Segment
from .index_format import NO_COUNT, NO_RECEIPT, NON_KEYED, IndexEntry


def tags_of(segment: Segment, batch: BatchView) -> KafkaTags:
    """Return all tags of a batch of `segment`; None for tags that only the records could tell. Raises OSError."""
    return tags_by_entry(segment.index_entry_for(batch.position), batch)


def tags_by_entry(entry: IndexEntry | None, batch: BatchView) -> KafkaTags:
    """Return all tags of a batch from its index entry, or from the last entry before the batch (`tags_at`)."""
    timestamp_ms: int | None = batch.max_timestamp if batch.magic != v0.MAGIC else None
    if entry is not None and entry.receipt != NO_RECEIPT:
        timestamp_ms = entry.receipt
    message_count = batch.record_count
    keyed: bool | None = None
    if batch.is_compressed:
        is_own = entry is not None and entry.position == batch.position
        if batch.magic < v2.MAGIC and entry is not None and is_own and entry.num_messages != NO_COUNT:
            message_count = entry.num_messages
        # Without an earlier entry the flags have their first value: the batch may have keys.
        keyed = entry is None or not entry.flags & NON_KEYED
    return KafkaTags(
        timestamp_ms=timestamp_ms,
        message_count=message_count,
        relative_offsets_honoured=not batch.is_numbered_by_index,
        keyed=keyed,
    )
