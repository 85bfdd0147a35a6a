"""Produced payloads and readings of a log, short to write in a test."""

from collections.abc import Sequence

from gregor.protocol.records import v0, v1, v2
from gregor.protocol.records.batches import Record, iter_batches, iter_records
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.validation import AppendRules, Produced, validate
from gregor.storage.log.partition_log import PartitionLog


def payload(
    values: Sequence[bytes],
    *,
    magic: int = 2,
    codec: Codec = Codec.NONE,
    timestamp: int = 1000,
    key: bytes | None = b"k",
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
) -> Produced:
    """Return records with these values and one timestamp, as a client sends them in one batch (v2) or message set."""
    records = [Record(index, timestamp, key, value) for index, value in enumerate(values)]
    if magic == 2:
        data = v2.build_batch(
            records,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            is_transactional=is_transactional,
        )
    elif magic == 1:
        data = v1.build_message_set(records, codec=codec)
    else:
        data = v0.build_message_set(records, codec=codec)
    return validate(bytearray(data), AppendRules(), now_ms=timestamp)


def marker(*, is_abort: bool, producer_id: int, producer_epoch: int = 0, coordinator_epoch: int = 0) -> Produced:
    """Return the marker with which a transaction coordinator ends a transaction."""
    key = b"\0\0\0" + (b"\0" if is_abort else b"\1")
    value = b"\0\0" + coordinator_epoch.to_bytes(4, "big")
    data = v2.build_batch(
        [Record(0, 1000, key, value)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )
    return validate(bytearray(data), AppendRules(from_client=False), now_ms=1000)


def append(log: PartitionLog, *values: bytes, timestamp: int = 1000, magic: int = 2, codec: Codec = Codec.NONE) -> int:
    """Append one payload; returns its first offset."""
    produced = payload(values, magic=magic, codec=codec, timestamp=timestamp)
    return log.append(produced, leader_epoch=0).base_offset


def read_records(log: PartitionLog, offset: int, *, max_bytes: int = 1 << 20) -> list[Record]:
    """Return the whole records that one read returns, from `offset` on."""
    with log.read(offset, max_bytes) as found:
        return [
            record for batch in iter_batches(found.read()) for record in iter_records(batch) if record.offset >= offset
        ]


def read_all(log: PartitionLog) -> list[Record]:
    """Return every record, read as a consumer would: one fetch after the other from the log's start."""
    records: list[Record] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        with log.read(offset, 1 << 20) as found:
            batches = list(iter_batches(found.read()))
            records += [record for batch in batches for record in iter_records(batch) if record.offset >= offset]
        if not batches:
            break
        # A batch whose records compaction has removed has offsets and no records.
        offset = batches[-1].last_offset + 1
    return records


def values_of(records: Sequence[Record]) -> list[bytes | None]:
    """Return the values of the records."""
    return [record.value for record in records]
