"""Producer batches for tests."""

from __future__ import annotations

from gregor.client.producer.appending_cy import record_size_bound
from gregor.client.producer.batch_cy import ProducerBatch
from gregor.protocol.records.compression import Codec

Raw = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


def batch_of(records: list[Raw], codec: Codec = Codec.NONE) -> ProducerBatch:
    """Return an open batch with these records."""
    batch = ProducerBatch("t", 0, codec=codec, ratio=1.0, size_limit=1 << 20, created_at=0.0)
    for timestamp, key, value, headers in records:
        batch.append(timestamp, key, value, headers)
        batch.reserved_bytes += record_size_bound(key, value, headers)
    return batch


def contents(batch: ProducerBatch) -> list[Raw]:
    """Return the records of a sealed batch."""
    return [(r.timestamp, r.key, r.value, [(h.key.decode(), h.value) for h in r.headers]) for r in batch.records()]
