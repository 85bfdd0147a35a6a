"""Kafka's `.snapshot` files: the producers that a log knows, as of the offset in the file's name.

    int16  version (1)
    uint32 CRC-32C of all that follows
    int32  number of producers, each:
        int64 producer id              int32 offset delta (last offset - first offset of the last batch)
        int16 epoch                    int64 timestamp of the last batch
        int32 last sequence            int32 coordinator epoch
        int64 last offset              int64 first offset of the open transaction, -1 if none

Source: Kafka `ProducerStateManager.readSnapshot` and `writeSnapshot`.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from ...protocol.records import crc_cy

VERSION = 1
HEADER = Struct(">hI")
COUNT = Struct(">i")
PRODUCER = Struct(">qhiqiqiq")


class MalformedSnapshotError(Exception):
    """A snapshot that is incomplete, of another version, or damaged."""


class ProducerSnapshot(NamedTuple):
    """The state of one producer, with the fields of the file; -1 for missing ones."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    transaction_first_offset: int


def format_snapshot(producers: list[ProducerSnapshot]) -> bytes:
    """Return the content of a snapshot file."""
    body = COUNT.pack(len(producers)) + b"".join(PRODUCER.pack(*producer) for producer in producers)
    return HEADER.pack(VERSION, crc_cy.crc32c(body)) + body


def parse_snapshot(data: bytes) -> list[ProducerSnapshot]:
    """Parse the producers of a snapshot file. Raises MalformedSnapshotError."""
    if len(data) < HEADER.size + COUNT.size:
        raise MalformedSnapshotError(f"{len(data)} bytes are not a snapshot")
    version, crc = HEADER.unpack_from(data)
    if version != VERSION:
        raise MalformedSnapshotError(f"version {version}")
    if crc_cy.crc32c(data[HEADER.size :]) != crc:
        raise MalformedSnapshotError("the CRC does not match")
    (count,) = COUNT.unpack_from(data, HEADER.size)
    start = HEADER.size + COUNT.size
    if count != (len(data) - start) // PRODUCER.size:
        raise MalformedSnapshotError(f"{count} producers in {len(data)} bytes")
    return [ProducerSnapshot(*fields) for fields in PRODUCER.iter_unpack(data[start : start + count * PRODUCER.size])]
