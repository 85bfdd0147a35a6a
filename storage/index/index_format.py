"""The layout of one segment's index file, `<offset, timestamp, position>` and the enriched tags; see `OffsetIndex`.

    header   96 bytes: the signature, what `_SUMMARY` packs, its CRC-32, then zeros
    entries  32 bytes each, in the order of the log:
             uint32 offset - base offset of the segment    first offset of the batch
             uint32 position                               of the batch in the .log file
             int64  timestamp                              largest in the segment up to and with this batch
             int64  receipt                                tag 0, milliseconds: receipt time (-1: unknown)
             int32  num_messages                           tag 32: records in a v0 or v1 wrapper (-1: header says it)
             uint16 flags                                  boolean tags: see NON_KEYED
             uint16 checksum                               odd, so that a zeroed page holds no entry

A batch gets an entry if more than `index.interval.bytes` lie between it and the last batch with an entry, or if its
tags differ from their defaults. Receipt and flags default to those of the entry before, so batches that were received
together need one entry. Receipt times of v0 messages are exact, as these messages have no other time; those of v1 and
v2 batches are exact to `RECEIPT_RESOLUTION_MS`.

The summary in the header is written when the segment is finished or closed, and is valid while the log has the size
in the summary. The seed of all checksums is the segment's base offset, so the index of another segment is detected.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, fields
from struct import Struct
from typing import NamedTuple

_SIGNATURE = b"GRGRIDX\x02"
_SUMMARY = Struct(">qqqqqqqiiBBBI")
_CRC = Struct(">I")
HEADER_SIZE = 96
ENTRY = Struct(">IIqqiHH")
ENTRY_SIZE = ENTRY.size
_CHECKED_SIZE = ENTRY_SIZE - 2

NON_KEYED = 0x01
"""The flag of a compressed batch without keys; without this flag a reader has to decompress the batch to know."""

NO_RECEIPT = -1
RECEIPT_RESOLUTION_MS = 1000
"""A v1 or v2 batch that was received so long after the batch of the last entry gets an entry of its own."""
NO_COUNT = -1


class IndexDamagedError(Exception):
    """An index with invalid checksums, or one that contradicts its log."""


class IndexEntry(NamedTuple):
    """One entry with its absolute offset; fields as in the file."""

    offset: int
    position: int
    timestamp: int
    receipt: int
    num_messages: int
    flags: int


@dataclass(slots=True)
class IndexSummary:
    """The summary of a finished or cleanly closed segment; timestamps in ms, -1 for none."""

    base_offset: int
    log_size_bytes: int = -1
    """-1 in a segment that is being written."""
    next_offset: int = -1
    max_timestamp: int = -1
    max_timestamp_offset: int = -1
    first_timestamp: int = -1
    receipt: int = NO_RECEIPT
    """The newest receipt time of an entry."""
    interval_bytes: int = 0
    entry_count: int = -1
    """-1 in an active segment: the entries end at the first zeros."""
    magics: int = 0
    """Bit m is set if batches of magic m may be present."""
    has_gaps: int = 0
    """1 if offsets may be missing, as after compaction or in a log of unknown history."""
    has_producers: int = 1
    """0 if the log was closed with this segment and without idempotent producers: there is no snapshot."""
    transactions_crc: int = 0
    """The CRC-32 of the segment's `.txnindex`, whose entries have no CRC; 0 if there is no such file."""


_SUMMARY_FIELDS = tuple(field.name for field in fields(IndexSummary))


def may_have_gaps(summary: IndexSummary | None) -> bool:
    """Return whether offsets may be missing in a segment with this summary; True without a summary."""
    return summary is None or bool(summary.has_gaps)


def pack_header(summary: IndexSummary) -> bytes:
    """Return the first `HEADER_SIZE` bytes of an index file with this summary."""
    packed = _SUMMARY.pack(*(getattr(summary, name) for name in _SUMMARY_FIELDS))
    return (_SIGNATURE + packed + _CRC.pack(zlib.crc32(packed))).ljust(HEADER_SIZE, b"\0")


def parse_summary(header: bytes, base_offset: int) -> IndexSummary | None:
    """Parse the summary in an index file's first bytes; None without one, or if damaged or of another segment."""
    start, end = len(_SIGNATURE), len(_SIGNATURE) + _SUMMARY.size
    if len(header) < HEADER_SIZE or header[:start] != _SIGNATURE:
        return None
    packed = header[start:end]
    if _CRC.unpack_from(header, end)[0] != zlib.crc32(packed):
        return None
    summary = IndexSummary(*_SUMMARY.unpack(packed))
    return summary if summary.base_offset == base_offset else None


def entry_checksum(entry: bytes, base_offset: int) -> int:
    """Return the checksum of an entry of `ENTRY_SIZE` bytes in the index of the segment at `base_offset`; it is odd."""
    return zlib.crc32(entry[:_CHECKED_SIZE], base_offset & 0xFFFFFFFF) & 0xFFFF | 1
