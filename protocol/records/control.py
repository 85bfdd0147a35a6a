"""Control records, which a broker writes between the data in batches that consumers skip (KIP-98, KIP-595).

    key    int16 version (0), int16 type
    value  of an end-transaction marker (COMMIT, ABORT): int16 version (0), int32 coordinator epoch

Source: Kafka `ControlRecordType` and `EndTransactionMarker`. Later versions may append fields, which are ignored.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from . import v2
from .batches import invalid_record
from .record import Buffer, Record

KEY = Struct(">hh")
"""version, type."""

END_TRANSACTION_VALUE = Struct(">hi")
"""version, coordinator epoch."""

CURRENT_VERSION = 0


class ControlType(IntEnum):
    """The type of a control record."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndTransactionMarker(NamedTuple):
    """A marker that ends one producer's transaction in one partition; `control_type` is COMMIT or ABORT."""

    control_type: ControlType
    coordinator_epoch: int

    @property
    def is_abort(self) -> bool:
        """Return whether the marker aborts the transaction."""
        return self.control_type is ControlType.ABORT


def control_type(key: Buffer | None) -> ControlType:
    """Return the type in a control record's key, UNKNOWN for a future type. Raises BrokerError INVALID_RECORD."""
    if key is None or len(key) < KEY.size:
        raise invalid_record(f"Invalid value size found for control record key. Must have at least {KEY.size} bytes")
    version, type_id = KEY.unpack_from(key)
    if version < CURRENT_VERSION:
        raise invalid_record(f"Invalid version found for control record: {version}. May indicate data corruption")
    return ControlType(type_id) if 0 <= type_id <= max(ControlType) else ControlType.UNKNOWN


def encode_key(kind: ControlType) -> bytes:
    """Encode a control record's key."""
    return KEY.pack(CURRENT_VERSION, kind)


def read_end_transaction_marker(record: Record) -> EndTransactionMarker | None:
    """Read a control record's transaction marker, None for another type. Raises BrokerError INVALID_RECORD."""
    kind = control_type(record.key)
    if kind not in (ControlType.COMMIT, ControlType.ABORT):
        return None
    if record.value is None or len(record.value) < END_TRANSACTION_VALUE.size:
        raise invalid_record(
            f"Invalid value size for end transaction marker. Must have at least {END_TRANSACTION_VALUE.size} bytes"
        )
    version, coordinator_epoch = END_TRANSACTION_VALUE.unpack_from(record.value)
    if version < CURRENT_VERSION:
        raise invalid_record(
            f"Invalid version found for end transaction marker: {version}. May indicate data corruption"
        )
    return EndTransactionMarker(kind, coordinator_epoch)


def build_end_transaction_batch(
    marker: EndTransactionMarker, *, producer_id: int, producer_epoch: int, timestamp: int, base_offset: int = 0
) -> bytes:
    """Build the batch that ends a transaction of `producer_id`; `timestamp` in milliseconds."""
    record = Record(
        base_offset,
        timestamp,
        encode_key(marker.control_type),
        END_TRANSACTION_VALUE.pack(CURRENT_VERSION, marker.coordinator_epoch),
    )
    return v2.build_batch(
        [record],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )
