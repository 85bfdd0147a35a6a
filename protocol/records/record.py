"""One record, whatever format it came in, and the two facts that all formats share: time stamps and their type."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

NO_TIMESTAMP = -1
"""Milliseconds field of a record that has no time stamp (Kafka `RecordBatch.NO_TIMESTAMP`)."""


class TimestampType(IntEnum):
    """Who set a batch's time stamps (KIP-32); the values are bit 3 of the attributes, format v0 has none."""

    NO_TIMESTAMP_TYPE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Header(NamedTuple):
    """A record header (KIP-82). The key is UTF-8 by convention, kept as it came so that nothing is lost."""

    key: bytes
    value: bytes | None = None


class Record(NamedTuple):
    """One record: absolute offset, milliseconds since the epoch (or NO_TIMESTAMP), bytes (None is a null)."""

    offset: int = 0
    timestamp: int = NO_TIMESTAMP
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[Header, ...] = ()
