"""The output of `gregor dump-log` for the files beside a segment: indexes, producer snapshots, leader epochs, tags."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Self

from ..protocol.records.batches import BatchView
from ..protocol.records.enriched import KafkaTags
from ..storage.disk import paths
from ..storage.disk.checkpoints import MalformedCheckpointError
from ..storage.disk.open_files import OpenFiles
from ..storage.disk.read_only_files import ReadOnlyFiles
from ..storage.index.enriched_tags import tags_by_entry
from ..storage.index.index_format import NO_COUNT, NO_RECEIPT, NON_KEYED, IndexDamagedError, IndexEntry
from ..storage.index.offset_index import OffsetIndex
from ..storage.index.transaction_index import ENTRY as TRANSACTION_ENTRY
from ..storage.index.transaction_index import VERSION as TRANSACTION_VERSION
from ..storage.index.transaction_index import parse_entries
from ..storage.log.leader_epochs import LeaderEpochs
from ..storage.producers.producer_snapshot import MalformedSnapshotError, parse_snapshot
from .asking import UsageError


class TagsBeside:
    """The tags of one segment's batches, from the segment's index, if there is one, and from their headers."""

    def __init__(self, segment: Path) -> None:
        self._index = _index_at(segment.with_suffix(paths.INDEX)) if segment.stem.isdecimal() else None
        self.is_there = self._index is not None and segment.with_suffix(paths.INDEX).exists()
        """Whether there is an index; without one the tags are those of the headers."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._index is not None:
            self._index.release_file()

    def tags_of(self, batch: BatchView) -> KafkaTags:
        """Return all known tags of a batch. Raises OSError."""
        return tags_by_entry(self.entry_of(batch), batch)

    def entry_of(self, batch: BatchView) -> IndexEntry | None:
        """Return the index entry with the tags of a batch: its own one, or the last one before it. Raises OSError."""
        if self.is_there and self._index is not None:
            try:
                return self._index.tags_at(batch.position)
            except IndexDamagedError:
                # A dump of the index, or `gregor log verify`, reports its damage.
                self.is_there = False
        return None


def describe_tags(tags: KafkaTags) -> str:
    """Return the existing tags by the names of the proposal: `timestamp=7010,num_messages=3,keyed=false`."""
    values = {
        "timestamp": tags.timestamp_ms,
        "num_messages": tags.message_count,
        "relative_offsets_honoured": tags.relative_offsets_honoured,
        "keyed": tags.keyed,
    }
    return ",".join(f"{name}={str(value).lower()}" for name, value in values.items() if value is not None) or "none"


def _index_at(path: Path) -> OffsetIndex:
    return OffsetIndex(OpenFiles(ReadOnlyFiles()), str(path), int(path.stem), 0)


def _describe_index(path: Path) -> Iterator[str]:
    """Yield the lines of an index: its summary and its entries. Raises UsageError for a damaged index, OSError."""
    path.stat()
    if not path.stem.isdecimal():
        raise UsageError(f"{path}: an index is named after its segment's base offset")
    index = _index_at(path)
    summary = index.read_summary()
    if summary is None:
        yield "No summary that can be believed"
    else:
        magics = [magic for magic in range(3) if summary.magics >> magic & 1]
        yield (
            f"baseOffset: {summary.base_offset} logSizeBytes: {summary.log_size_bytes} nextOffset: "
            f"{summary.next_offset} maxTimestamp: {summary.max_timestamp} maxTimestampOffset: "
            f"{summary.max_timestamp_offset} firstTimestamp: {summary.first_timestamp} receipt: {summary.receipt} "
            f"intervalBytes: {summary.interval_bytes} entries: {summary.entry_count} magics: "
            f"{magics} hasGaps: {str(bool(summary.has_gaps)).lower()}"
        )
    try:
        for entry in index.entries():
            tags = [f"receipt={entry.receipt}"] if entry.receipt != NO_RECEIPT else []
            tags += [f"num_messages={entry.num_messages}"] if entry.num_messages != NO_COUNT else []
            tags += ["keyed=false"] if entry.flags & NON_KEYED else []
            shown = f" tags: {','.join(tags)}" if tags else ""
            yield f"offset: {entry.offset} position: {entry.position} timestamp: {entry.timestamp}{shown}"
    except IndexDamagedError as fault:
        raise UsageError(str(fault)) from fault
    finally:
        index.release_file()


def _describe_transactions(path: Path) -> Iterator[str]:
    data = path.read_bytes()
    entries = parse_entries(data)
    for entry in entries:
        yield (
            f"version: {TRANSACTION_VERSION} producerId: {entry.producer_id} firstOffset: {entry.first_offset} "
            f"lastOffset: {entry.last_offset} lastStableOffset: {entry.last_stable_offset}"
        )
    invalid_bytes = len(data) - len(entries) * TRANSACTION_ENTRY.size
    if invalid_bytes:
        yield f"Found {invalid_bytes} invalid bytes at the end of {path.name}"


def _describe_snapshot(path: Path) -> Iterator[str]:
    try:
        producers = parse_snapshot(path.read_bytes())
    except MalformedSnapshotError as fault:
        raise UsageError(f"{path}: {fault}") from fault
    for producer in producers:
        begun = producer.transaction_first_offset
        yield (
            f"producerId: {producer.producer_id} producerEpoch: {producer.epoch} coordinatorEpoch: "
            f"{producer.coordinator_epoch} currentTxnFirstOffset: "
            f"{f'OptionalLong[{begun}]' if begun >= 0 else 'OptionalLong.empty'} lastTimestamp: {producer.timestamp} "
            f"firstSequence: {max(producer.last_sequence - producer.offset_delta, -1)} lastSequence: "
            f"{producer.last_sequence} lastOffset: {producer.last_offset} offsetDelta: {producer.offset_delta} "
            f"timestamp: {producer.timestamp}"
        )


def _describe_epochs(path: Path) -> Iterator[str]:
    path.stat()
    epochs = LeaderEpochs(ReadOnlyFiles(), str(path))
    try:
        epochs.load()
    except MalformedCheckpointError as fault:
        raise UsageError(f"{path}: {fault}") from fault
    for epoch, start_offset in epochs.entries():
        yield f"leaderEpoch: {epoch} startOffset: {start_offset}"


SIDE_FILES: Mapping[str, Callable[[Path], Iterator[str]]] = {
    paths.INDEX: _describe_index,
    paths.TRANSACTION_INDEX: _describe_transactions,
    paths.SNAPSHOT: _describe_snapshot,
    paths.LEADER_EPOCH_CHECKPOINT: _describe_epochs,
}
"""The function that yields a file's lines, by suffix or whole name.

Each raises UsageError for a damaged file, OSError.
"""
