"""The transactions of a partition in a log directory: which were aborted, and how far all are decided."""

from __future__ import annotations

from pathlib import Path

from ..storage import paths
from ..storage.transaction_index import AbortedTransaction, parse_entries
from .header_batches import HeaderBatches
from .log_files import PartitionFiles, mapped

HEADER_ROWS = 10_000


def aborted_transactions(partition: PartitionFiles) -> tuple[AbortedTransaction, ...]:
    """All that the partition knows of; a transaction is noted where its marker is, later than its records."""
    found: list[AbortedTransaction] = []
    for segment in partition.segments:
        index = Path(segment.path).with_suffix(paths.TRANSACTION_INDEX)
        if index.exists():
            found += parse_entries(index.read_bytes())
    return tuple(found)


def stable_end(partition: PartitionFiles) -> int:
    """The offset up to which every transaction is decided, and the partition's end at most. Raises DamagedLogError."""
    open_since: dict[int, int] = {}
    for segment in partition.segments:
        stored = mapped(segment)
        headers = HeaderBatches(*partition.name, segment=segment.path, batch_rows=HEADER_ROWS)
        for rows in headers.read(stored, 0, len(stored)):
            chosen = rows.filter(rows["isTransactional"])
            columns = (chosen[name].to_pylist() for name in ("producerId", "baseOffset", "isControl"))
            for producer_id, base_offset, is_control in zip(*columns, strict=True):
                if is_control:
                    open_since.pop(producer_id, None)
                else:
                    open_since.setdefault(producer_id, base_offset)
    return min([partition.log_end_offset, *open_since.values()])
