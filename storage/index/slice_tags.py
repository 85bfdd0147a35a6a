"""The enriched tags of the batches in a slice."""

from __future__ import annotations

from ...protocol.records import v2
from ...protocol.records.batches import BatchView
from ...protocol.records.tagged_batches import TaggedBatch
from ..log.log_slice import LogSlice
from .enriched_tags import tags_by_entry
from .index_format import NO_COUNT, IndexEntry


def tags_in(log_slice: LogSlice, most_batches: int) -> list[TaggedBatch]:
    """Return the tags of the whole batches in a slice that was just read, and cut the slice after `most_batches`.

    Raises OSError, SegmentDamagedError.
    """
    segment = log_slice.segment
    if segment is None:
        return []
    start, end = log_slice.position, log_slice.position + log_slice.size_bytes
    entries = segment.looked_up(lambda index: index.entries_for(start, end))
    tagged: list[TaggedBatch] = []
    entry: IndexEntry | None = None
    coming = 0
    for batch in segment.batches_from(start):
        if batch.end > end:
            break
        if len(tagged) == most_batches:
            log_slice.size_bytes = batch.position - start
            break
        while coming < len(entries) and entries[coming].position <= batch.position:
            entry = entries[coming]
            coming += 1
        tagged.append(TaggedBatch(_first_offset(batch, entry), tags_by_entry(entry, batch)))
    return tagged


def _first_offset(batch: BatchView, entry: IndexEntry | None) -> int:
    if batch.magic == v2.MAGIC or not batch.is_compressed:
        return batch.stored_offset
    # A wrapper's header has no first offset. Only if its index entry is lost it has to be decompressed.
    is_own = entry is not None and entry.position == batch.position and entry.num_messages != NO_COUNT
    return entry.offset if entry is not None and is_own else batch.base_offset
