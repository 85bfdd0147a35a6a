"""The committed records of a log directory, found by the batches alone, without an index of transactions.

One pass over the headers: a producer's transaction begins with its first transactional batch and ends with its
marker.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from ...protocol.errors import BrokerError
from ...protocol.records.batches import BatchView, complete_batch_at, iter_records
from ...protocol.records.control import ControlType, control_type
from ...storage.index.transaction_index import AbortedTransaction
from ..columns.header_batches import HeaderBatches
from ..columns.record_batches import BatchFilter
from ..errors import DamagedLogError, reason
from .log_files import PartitionFiles, mapped

HEADERS_AT_ONCE = 10_000


def aborted_transactions(partition: PartitionFiles) -> tuple[AbortedTransaction, ...]:
    """Return the transactions that were aborted, in the order of their markers. Raises DamagedLogError, OSError."""
    return read_transactions(partition)[0]


def read_transactions(partition: PartitionFiles) -> tuple[tuple[AbortedTransaction, ...], int]:
    """Return the aborted transactions, and the offset before which every transaction has ended, at most the partition's
    end.

    Raises DamagedLogError, OSError.
    """
    aborted: list[AbortedTransaction] = []
    begun: dict[int, int] = {}
    for batch in _transactional_batches(partition):
        if not batch.is_control:
            begun.setdefault(batch.producer_id, batch.stored_offset)
            continue
        first_offset = begun.pop(batch.producer_id, None)
        if first_offset is not None and _is_abort(partition, batch):
            stable_offset = min(begun.values(), default=batch.last_offset + 1)
            aborted.append(AbortedTransaction(batch.producer_id, first_offset, batch.last_offset, stable_offset))
    return tuple(aborted), min(begun.values(), default=partition.log_end_offset)


def hides_aborted(aborted: Sequence[AbortedTransaction]) -> BatchFilter | None:
    """Return a filter that tells whether a batch belongs to one of these transactions."""
    if not aborted:
        return None

    def hides(batch: BatchView) -> bool:
        return batch.is_transactional and any(
            item.producer_id == batch.producer_id and item.first_offset <= batch.stored_offset <= item.last_offset
            for item in aborted
        )

    return hides


def _transactional_batches(partition: PartitionFiles) -> Iterator[BatchView]:
    for segment in partition.segments:
        stored = mapped(segment, segment.size_bytes)
        headers = HeaderBatches(*partition.name, segment=segment.path, batch_rows=HEADERS_AT_ONCE)
        for rows in headers.read(stored, 0, len(stored)):
            for position in _chosen(rows):
                batch = complete_batch_at(stored, position)
                if batch.last_offset >= partition.log_end_offset:
                    return
                yield batch


def _chosen(rows: pa.RecordBatch) -> list[int]:
    """Return the positions of the transactional batches, markers among them."""
    positions: list[int] = rows.column("position").filter(rows.column("isTransactional")).to_pylist()
    return positions


def _is_abort(partition: PartitionFiles, batch: BatchView) -> bool:
    try:
        return control_type(next(iter_records(batch)).key) is ControlType.ABORT
    except (BrokerError, StopIteration) as fault:
        problem = reason(fault) if isinstance(fault, BrokerError) else "a marker without a record"
        raise DamagedLogError(*partition.name, batch.stored_offset, problem) from fault
