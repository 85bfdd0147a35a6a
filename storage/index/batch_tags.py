"""The enriched tags of batches that a scan finds: from the old index if it can be read, else from the batches.

Num_messages and keyed can be computed from the batch, after a decompression. Receipt times cannot, and the estimates
for lost ones are never too early, so that no record is deleted before its time:

- After damaged entries, up to the next good one, the receipt time is that of the good one.
- Without such an entry it is the file's modification time, or the timestamp of a batch with LogAppendTime.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from contextlib import suppress
from typing import NamedTuple, Protocol

from ...protocol.errors import BrokerError
from ...protocol.records import v0, v2
from ...protocol.records.batches import BatchView, iter_records
from ...protocol.records.record import TimestampType
from .index_format import NO_COUNT, NO_RECEIPT, NON_KEYED, IndexEntry
from .offset_index import OffsetIndex

logger = logging.getLogger(__name__)


class BatchTags(NamedTuple):
    """The tags of one batch as arguments of `OffsetIndex.offer`, and its first offset, which no wrapper has."""

    first_offset: int
    receipt: int
    num_messages: int
    flags: int | None


class Tags(Protocol):
    """A source of tags for the batches that a scan reads."""

    def tags_of(self, batch: BatchView) -> BatchTags:
        """Return the tags of a valid batch."""


class OldIndexTags:
    """A source of tags that reads the segment's old index if possible, else the batches."""

    def __init__(self, old_index: OffsetIndex, *, default_receipt_ms: int) -> None:
        self._default_receipt_ms = default_receipt_ms
        salvaged: list[IndexEntry | None] = []
        with suppress(OSError):
            salvaged = old_index.salvaged_entries()
        self._entries = [entry for entry in salvaged if entry is not None]
        self._positions = [entry.position for entry in self._entries]
        self._is_followed_by_damage = [
            number + 1 < len(salvaged) and salvaged[number + 1] is None
            for number, entry in enumerate(salvaged)
            if entry is not None
        ]

    def tags_of(self, batch: BatchView) -> BatchTags:
        """Return the tags of a valid batch."""
        old = self._old_entry(batch.position)
        receipt = self._receipt_of(batch)
        if old is not None and batch.is_compressed and batch.magic == v2.MAGIC:
            return BatchTags(batch.stored_offset, receipt, NO_COUNT, old.flags)
        if old is not None and old.position == batch.position and old.num_messages != NO_COUNT:
            return BatchTags(old.offset, receipt, old.num_messages, old.flags)
        return tags_inside(batch, receipt)

    def _receipt_of(self, batch: BatchView) -> int:
        """Return the receipt time of the last old entry up to the batch; after a kill no entry is missing there."""
        index = bisect_right(self._positions, batch.position)
        if index == 0 or (self._is_followed_by_damage[index - 1] and self._positions[index - 1] != batch.position):
            index += 1
        if index <= len(self._entries) and self._entries[index - 1].receipt != NO_RECEIPT:
            return self._entries[index - 1].receipt
        is_stamped = batch.magic != v0.MAGIC and batch.timestamp_type is TimestampType.LOG_APPEND_TIME
        return batch.max_timestamp if is_stamped else self._default_receipt_ms

    def _old_entry(self, position: int) -> IndexEntry | None:
        """Return the old entry that covers the batch at `position`; None beyond the last old entry and in a damage."""
        index = bisect_right(self._positions, position)
        is_last = index in (0, len(self._entries)) or self._is_followed_by_damage[index - 1]
        if index == 0 or (is_last and self._positions[index - 1] < position):
            return None
        return self._entries[index - 1]


def tags_inside(batch: BatchView, receipt: int) -> BatchTags:
    """Read the tags from the batch itself, decompressing the batch if necessary; `receipt` is passed on."""
    if not batch.is_compressed:
        return BatchTags(batch.stored_offset, receipt, NO_COUNT, None)
    first_offset, count, is_keyed = batch.stored_offset, 0, False
    try:
        for record in iter_records(batch):
            if count == 0:
                first_offset = record.offset
            count += 1
            is_keyed = is_keyed or record.key is not None
            if batch.magic == v2.MAGIC and is_keyed:
                break
    except BrokerError as fault:
        # Its CRC is valid, so a producer sent it like this: the batch stays, with the tags that are always safe.
        logger.warning("cannot read the tags of the batch that ends at offset %d: %s", batch.last_offset, fault)
        return BatchTags(batch.stored_offset, receipt, NO_COUNT, 0)
    return BatchTags(
        first_offset if batch.magic < v2.MAGIC else batch.stored_offset,
        receipt,
        count if batch.magic < v2.MAGIC else NO_COUNT,
        0 if is_keyed else NON_KEYED,
    )
