"""The check of `gregor dump-log --enriched --verify`: the metadata of the index equals that of the opened batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..protocol.records import v2
from ..protocol.records.batches import BatchView, iter_records
from ..protocol.records.enriched import KafkaTags, encode_message, iter_messages
from ..protocol.records.enriched import iter_records as iter_enriched_records
from ..protocol.records.enriched_copy import enriched_copies
from ..protocol.records.record import NO_TIMESTAMP, Record
from ..storage.index.index_format import NO_COUNT, NO_RECEIPT, IndexEntry


class Contents(NamedTuple):
    """The facts about a batch that are known only after its decompression."""

    first_offset: int | None
    last_offset: int | None
    message_count: int
    has_keys: bool


class EnrichedCheck:
    """A check of batches that counts what it has found."""

    def __init__(self) -> None:
        self.batch_count = 0
        self.record_count = 0
        self.difference_count = 0
        self.careful_count = 0
        """Compressed batches without keys that are tagged as keyed."""

    def differences(self, batch: BatchView, tags: KafkaTags, entry: IndexEntry | None) -> Iterator[str]:
        """Open a batch and yield a line for each difference from its tags and its own index entry.

        Raises BrokerError for a batch that cannot be opened.
        """
        records = list(iter_records(batch))
        contents = _contents_of(records)
        self.batch_count += 1
        self.record_count += contents.message_count
        if batch.is_compressed and tags.keyed and not contents.has_keys:
            self.careful_count += 1
        found = [*_wrong_tags(batch, tags, entry, contents), *_wrong_copies(batch, tags, records)]
        self.difference_count += len(found)
        for text in found:
            yield f"Found a difference at position {batch.position}, last offset {batch.last_offset}: {text}"

    def summary(self) -> str:
        """Return one line about all batches."""
        checked = f"Checked batches: {self.batch_count}, records: {self.record_count}, "
        careful = f", batches without keys that count as keyed: {self.careful_count}" if self.careful_count else ""
        return f"{checked}differences between index and batches: {self.difference_count}{careful}"


def _contents_of(records: list[Record]) -> Contents:
    return Contents(
        records[0].offset if records else None,
        records[-1].offset if records else None,
        len(records),
        any(record.key is not None for record in records),
    )


def _wrong_tags(batch: BatchView, tags: KafkaTags, entry: IndexEntry | None, contents: Contents) -> Iterator[str]:
    if entry is None or entry.receipt == NO_RECEIPT:
        yield "there is no receipt time"
    if tags.message_count != contents.message_count:
        yield f"num_messages is {tags.message_count}, the batch has {contents.message_count} messages"
    if batch.is_compressed and contents.has_keys and tags.keyed is False:
        yield "keyed is false, the batch has keys"
    if batch.is_compressed and batch.magic < v2.MAGIC:
        if entry is None or entry.position != batch.position or entry.num_messages == NO_COUNT:
            yield "the set has no entry in the index"
        elif entry.offset != contents.first_offset:
            yield f"the first offset is {entry.offset}, the first message has offset {contents.first_offset}"
        if tags.relative_offsets_honoured and contents.last_offset != batch.last_offset:
            yield f"relative offsets are honoured, and the last message has offset {contents.last_offset}"


def _wrong_copies(batch: BatchView, tags: KafkaTags, records: list[Record]) -> Iterator[str]:
    """Yield a line if the batch's messages in the enriched layout do not lead back to its records."""
    messages = [*iter_messages(b"".join(map(encode_message, enriched_copies(batch, tags))))]
    if batch.is_control:
        return
    copied = [record for message in messages for record in iter_enriched_records(message)]
    if len(copied) != len(records) or _essence(copied, records) != _essence(records, records):
        yield "the messages of the enriched layout do not have the records of the batch"
    for message in messages:
        if batch.is_compressed and message.tags is not None and message.tags.message_count != tags.message_count:
            yield f"the enriched message has num_messages {message.tags.message_count}"


def _essence(records: Iterable[Record], originals: Iterable[Record]) -> list[tuple[object, ...]]:
    """Return what the layout can hold of records: a message of v0 has a timestamp only there."""
    return [
        (record.offset, record.key, record.value, *([record.timestamp] if original.timestamp != NO_TIMESTAMP else []))
        for record, original in zip(records, originals, strict=True)
    ]
