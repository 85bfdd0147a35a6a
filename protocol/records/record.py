"""A record of any format, and timestamp types."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

NO_TIMESTAMP = -1
"""The timestamp of a record without a timestamp (Kafka `RecordBatch.NO_TIMESTAMP`)."""


class TimestampType(IntEnum):
    """The type of a batch's timestamps (KIP-32); the values are bit 3 of the attributes, format v0 has none."""

    NO_TIMESTAMP_TYPE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Header(NamedTuple):
    """A record header (KIP-82). The key is UTF-8 by convention, and kept as bytes since producers may send others."""

    key: bytes
    value: bytes | None = None


class Record(NamedTuple):
    """A record: absolute offset, milliseconds since the epoch (or NO_TIMESTAMP), key and value (None is a null)."""

    offset: int = 0
    timestamp: int = NO_TIMESTAMP
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[Header, ...] = ()
