"""Complete batches built by the caller, made ready to be produced without changing their records.

In format v2 all fields that change are in the header, so a new CRC is the only cost. Formats v0 and v1 have no
fields that would have to change.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.records import v2
from ...protocol.records.batches import BatchView, iter_batches, read_batch
from ...protocol.records.compression import Codec
from ...protocol.records.record import NO_TIMESTAMP

_PRODUCER_FIELDS = Struct(">qhi")
"""Producer id, epoch, base sequence: adjacent fields of a v2 header, from PRODUCER_ID_AT on."""
_ATTRIBUTES = Struct(">h")
_OFFSET = Struct(">q")
_LEADER_EPOCH = Struct(">i")


@dataclass(frozen=True, slots=True)
class RawBatch:
    """The batch of one partition in a Produce request, and the fields of its header.

    `record_count` is 0 for a compressed v0 or v1 set, which does not declare its count. `base_sequence` is that of
    the batch as it was passed in, -1 without one.
    """

    payload: bytes
    magic: int
    codec: Codec
    record_count: int
    max_timestamp: int
    producer_id: int = v2.NO_PRODUCER_ID
    producer_epoch: int = v2.NO_PRODUCER_EPOCH
    base_sequence: int = v2.NO_SEQUENCE


def read_raw(payload: bytes) -> RawBatch:
    """Parse one complete batch, or uncompressed messages of format v0 or v1, which may be sent together.

    Raises ValueError for anything else, BrokerError CORRUPT_MESSAGE for bytes that are no batch, or a damaged one:
    stamping a batch writes a new CRC, which would make the damage valid for ever.
    """
    first = read_batch(payload)
    if first is None:
        raise ValueError("expected a whole record batch")
    _check_crc(first)
    if first.magic == v2.MAGIC or first.is_compressed:
        if first.size_bytes != len(payload):
            raise ValueError("expected exactly one whole record batch")
        if first.is_control:
            raise ValueError("a control batch cannot be produced")
        return RawBatch(
            payload,
            first.magic,
            first.codec,
            first.record_count or 0,
            first.max_timestamp,
            first.producer_id,
            first.producer_epoch,
            first.base_sequence,
        )
    count, end, newest = 0, 0, NO_TIMESTAMP
    for message in iter_batches(payload):
        if message.magic != first.magic or message.is_compressed:
            raise ValueError("only uncompressed messages of one format go together")
        _check_crc(message)
        count, end, newest = count + 1, message.end, max(newest, message.max_timestamp)
    if end != len(payload):
        raise ValueError("expected whole messages")
    return RawBatch(payload, first.magic, Codec.NONE, count, newest)


def _check_crc(batch: BatchView) -> None:
    if not batch.crc_is_valid:
        raise BrokerError(ErrorCode.CORRUPT_MESSAGE, "the CRC of the batch does not match its bytes")


def produced_again(
    batch: BatchView,
    *,
    producer_id: int = v2.NO_PRODUCER_ID,
    producer_epoch: int = v2.NO_PRODUCER_EPOCH,
    base_sequence: int = v2.NO_SEQUENCE,
    is_transactional: bool = False,
    base_offset: int = 0,
) -> bytes:
    """Return a copy of a v2 batch as this producer would have built it: with its identity and its flags.

    The copy also loses the delete horizon of a compacted log; the timestamps relative to that horizon remain
    correct.
    """
    copy = bytearray(batch.view)
    produce_again(
        copy, producer_id, producer_epoch, base_sequence, is_transactional=is_transactional, base_offset=base_offset
    )
    return bytes(copy)


def produce_again(
    payload: bytearray | memoryview,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    *,
    is_transactional: bool = False,
    base_offset: int = 0,
) -> None:
    """Rewrite the header of a complete v2 batch in place, as `produced_again` does in a copy, for callers that own the
    memory.
    """
    (attributes,) = _ATTRIBUTES.unpack_from(payload, v2.ATTRIBUTES_AT)
    flags = attributes & ~(v2.TRANSACTIONAL_FLAG | v2.DELETE_HORIZON_FLAG)
    if is_transactional:
        flags |= v2.TRANSACTIONAL_FLAG
    _OFFSET.pack_into(payload, v2.BASE_OFFSET_AT, base_offset)
    _LEADER_EPOCH.pack_into(payload, v2.LEADER_EPOCH_AT, v2.NO_LEADER_EPOCH)
    _ATTRIBUTES.pack_into(payload, v2.ATTRIBUTES_AT, flags)
    stamp(payload, producer_id, producer_epoch, base_sequence)


def stamp(payload: bytearray | memoryview, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
    """Write a producer's identity and the first record's sequence number into a v2 batch, and its new CRC."""
    write_producer(payload, producer_id, producer_epoch, base_sequence)
    v2.write_crc(payload)


def write_producer(payload: bytearray | memoryview, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
    """Write a producer's identity and the first record's sequence number into a v2 batch, but not its new CRC."""
    _PRODUCER_FIELDS.pack_into(payload, v2.PRODUCER_ID_AT, producer_id, producer_epoch, base_sequence)
