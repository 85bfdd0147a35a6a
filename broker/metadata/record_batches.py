"""Metadata records as bytes: each in Kafka's frame, related records in one batch (Kafka `MetadataRecordSerde`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...protocol.codec import decode, encode
from ...protocol.errors import DecodeError
from ...protocol.messages.cluster_metadata_records import (
    RECORD_TYPES,
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)
from ...protocol.records import v2
from ...protocol.records.control import ControlType, encode_key
from ...protocol.records.record import Record
from ...protocol.schema import Message
from ...protocol.unsigned_varint import read_unsigned_varint

FRAME_VERSION = 1
WRITTEN_VERSIONS: Mapping[type[Message], int] = {
    RegisterBrokerRecord: 3,
    BrokerRegistrationChangeRecord: 2,
    PartitionRecord: 1,
    PartitionChangeRecord: 1,
}
"""Other records are written in version 0: the fields of later versions have no use here."""

_TYPE_OF = {record_class: number for number, record_class in RECORD_TYPES.items()}


def encode_record(record: Message) -> bytes:
    """Return a record in its frame."""
    version = WRITTEN_VERSIONS.get(type(record), 0)
    return bytes((FRAME_VERSION, _TYPE_OF[type(record)], version)) + encode(record, version)


def decode_record(value: bytes | memoryview) -> Message | None:
    """Return the record in a frame; None for an unknown type. Raises DecodeError, BrokerError (version)."""
    frame_version, position = read_unsigned_varint(value, 0)
    if frame_version != FRAME_VERSION:
        raise DecodeError(f"metadata frame version {frame_version}")
    number, position = read_unsigned_varint(value, position)
    version, position = read_unsigned_varint(value, position)
    record_class = RECORD_TYPES.get(number)
    return None if record_class is None else decode(record_class, memoryview(value)[position:], version)


def record_batch(records: Sequence[Message], base_offset: int, now_ms: int, epoch: int) -> bytes:
    """Return records as one batch; the first has ``base_offset``."""
    encoded = [Record(base_offset + index, now_ms, None, encode_record(record)) for index, record in enumerate(records)]
    return v2.build_batch(encoded, base_offset=base_offset, leader_epoch=epoch)


def control_batch(kind: ControlType, value: bytes, offset: int, now_ms: int, epoch: int) -> bytes:
    """Return a control record as a batch."""
    record = Record(offset, now_ms, encode_key(kind), value)
    return v2.build_batch([record], base_offset=offset, is_control=True, leader_epoch=epoch)
