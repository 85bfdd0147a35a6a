"""The enriched tags of batches that a scan finds: from the old index as far as it can be read, else from the batches.

Num_messages and keyed are in the bytes, behind a decompression. The receipt time of a v0 message is not: if the index
is lost, the time when the file was last written stands for it, as Kafka does for whole segments.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from contextlib import suppress
from typing import NamedTuple, Protocol

from ...protocol.errors import BrokerError
from ...protocol.records import v0, v2
from ...protocol.records.batches import BatchView, iter_records
from .offset_index import NO_COUNT, NO_RECEIPT, NON_KEYED, IndexDamagedError, IndexEntry, OffsetIndex

logger = logging.getLogger(__name__)


class BatchTags(NamedTuple):
    """Tags of one batch as `OffsetIndex.offer` takes them, and its first offset, which v0 and v1 wrappers hide."""

    first_offset: int
    receipt: int
    num_messages: int
    flags: int | None


class Tags(Protocol):
    """Where a scan finds the tags of the batches that it meets."""

    def tags_of(self, batch: BatchView) -> BatchTags:
        """Return the tags of a valid batch."""


class OldIndexTags:
    """Tags from the index that a segment had, where it can be read, else from the batches."""

    def __init__(self, old_index: OffsetIndex, *, default_receipt_ms: int) -> None:
        self._default_receipt_ms = default_receipt_ms
        self._entries: list[IndexEntry] = []
        # What was read before any damage has good checksums.
        with suppress(IndexDamagedError, OSError):
            self._entries.extend(old_index.entries())
        self._positions = [entry.position for entry in self._entries]

    def tags_of(self, batch: BatchView) -> BatchTags:
        """Return the tags of a valid batch."""
        old = self._old_entry(batch.position)
        receipt = NO_RECEIPT
        if batch.magic == v0.MAGIC:
            receipt = self._receipt_at(batch.position)
        if old is not None and batch.is_compressed and batch.magic == v2.MAGIC:
            return BatchTags(batch.stored_offset, receipt, NO_COUNT, old.flags)
        if old is not None and old.position == batch.position and old.num_messages != NO_COUNT:
            return BatchTags(old.offset, receipt, old.num_messages, old.flags)
        return tags_inside(batch, receipt)

    def _receipt_at(self, position: int) -> int:
        """Return the receipt time of the last old entry up to `position`; after a kill no entry is missing there."""
        index = bisect_right(self._positions, position)
        receipt = self._entries[index - 1].receipt if index else NO_RECEIPT
        return self._default_receipt_ms if receipt == NO_RECEIPT else receipt

    def _old_entry(self, position: int) -> IndexEntry | None:
        """Find the old entry that covers the batch at `position`; None beyond the last old entry."""
        index = bisect_right(self._positions, position)
        if index == 0 or (index == len(self._entries) and self._positions[-1] < position):
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
        # Its CRC is right, so it is what somebody wrote: it stays, with the tags that promise least.
        logger.warning("tags of the batch to offset %d cannot be found: %s", batch.last_offset, fault)
        return BatchTags(batch.stored_offset, receipt, NO_COUNT, 0)
    return BatchTags(
        first_offset if batch.magic < v2.MAGIC else batch.stored_offset,
        receipt,
        count if batch.magic < v2.MAGIC else NO_COUNT,
        0 if is_keyed else NON_KEYED,
    )
