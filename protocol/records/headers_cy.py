"""Batch headers as columns, and a walk from header to header, without reading records.

This is ordinary Python that is also compiled, like ``kernel_cy``: ``headers_cy.pxd`` has the C types.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from . import cython_stand_in as cython

if not cython.compiled:
    from .checksum_libraries import crc32_of, crc32c_of
    from .message_bytes import batch_size_at, int16_at, int32_at, int64_at

COMPILED: bool = cython.compiled
"""Whether this module is compiled."""

UNKNOWN = -1
"""The value of a field that a header does not have: first offset and record count of a compressed v0 or v1 set, a
timestamp, and fields of later formats."""

MAX_INT64 = 0x7FFFFFFFFFFFFFFF
UINT32_MAX = 0xFFFFFFFF


class HeaderColumns:
    """Columns of batch headers with room for equally many rows, of which `rows` are filled.

    `int64s`: base offset, last offset, position, first and largest timestamp (milliseconds), producer id.
    `int32s`: size, magic, codec id, number of records, timestamp type, leader epoch, producer epoch, base sequence.
    `flags` (one byte each): is transactional, is control, has a valid CRC (only with `checks_crc`, which reads
    every byte).
    """

    def __init__(
        self,
        int64s: tuple[memoryview, ...],
        int32s: tuple[memoryview, ...],
        flags: tuple[memoryview, ...],
        checks_crc: bool,
    ) -> None:
        (
            self.base_offsets,
            self.last_offsets,
            self.positions,
            self.first_timestamps,
            self.max_timestamps,
            self.producer_ids,
        ) = int64s
        (
            self.sizes,
            self.magics,
            self.codecs,
            self.counts,
            self.timestamp_types,
            self.leader_epochs,
            self.producer_epochs,
            self.base_sequences,
        ) = int32s
        self.transactional, self.control, self.crc_ok = flags
        self.checks_crc = checks_crc
        self.capacity = len(self.base_offsets)
        self.rows = 0

    def fill(self, stored: memoryview, position: int, end: int, file_position: int) -> int:
        """Add the headers of complete batches from `position` up to `end`, while there is room; return their end.

        `file_position` is the position of `stored` in its file. Raises ValueError for positions outside the buffer.
        """
        if not 0 <= position <= end <= len(stored):
            raise ValueError(f"positions {position} to {end} are not in a buffer of {len(stored)} bytes")
        if position == end:
            return position
        data = cython.address(stored[0]) if cython.compiled else stored
        with cython.nogil:
            while self.rows < self.capacity:
                size = batch_size_at(data, position, end)
                if size <= 0:
                    break
                self._take(data, position, size, file_position)
                position += size
        return position

    def _take(self, data: memoryview, position: int, size: int, file_position: int) -> None:
        row = self.rows
        self.positions[row] = file_position + position
        self.sizes[row] = size
        self.magics[row] = data[position + 16]
        if data[position + 16] == 2:
            self._take_v2(data, position, row)
            crc_at, start = position + 17, position + 21
        else:
            self._take_message(data, position, row)
            crc_at, start = position + 12, position + 16
        if self.checks_crc:
            if data[position + 16] == 2:
                crc = crc32c_of(data, start, position + size)
            else:
                crc = crc32_of(data, start, position + size)
            self.crc_ok[row] = int32_at(data, crc_at) & UINT32_MAX == crc
        self.rows = row + 1

    def _take_v2(self, data: memoryview, position: int, row: int) -> None:
        attributes = int16_at(data, position + 21)
        self.base_offsets[row] = int64_at(data, position)
        self.last_offsets[row] = int64_at(data, position) + int32_at(data, position + 23)
        # With a delete horizon the base timestamp is that horizon (KIP-534).
        self.first_timestamps[row] = UNKNOWN if attributes & 0x40 else int64_at(data, position + 27)
        self.max_timestamps[row] = int64_at(data, position + 35)
        self.producer_ids[row] = int64_at(data, position + 43)
        self.codecs[row] = attributes & 0x07
        self.counts[row] = int32_at(data, position + 57)
        self.timestamp_types[row] = 1 if attributes & 0x08 else 0
        self.leader_epochs[row] = int32_at(data, position + 12)
        self.producer_epochs[row] = int16_at(data, position + 51)
        self.base_sequences[row] = int32_at(data, position + 53)
        self.transactional[row] = attributes & 0x10 != 0
        self.control[row] = attributes & 0x20 != 0

    def _take_message(self, data: memoryview, position: int, row: int) -> None:
        attributes = data[position + 17]
        is_wrapper = attributes & 0x07 != 0
        timestamp = int64_at(data, position + 18) if data[position + 16] == 1 else UNKNOWN
        self.base_offsets[row] = UNKNOWN if is_wrapper else int64_at(data, position)
        self.last_offsets[row] = int64_at(data, position)
        self.first_timestamps[row] = UNKNOWN if is_wrapper else timestamp
        self.max_timestamps[row] = timestamp
        self.producer_ids[row] = UNKNOWN
        self.codecs[row] = attributes & 0x07
        self.counts[row] = UNKNOWN if is_wrapper else 1
        self.timestamp_types[row] = UNKNOWN
        if data[position + 16] == 1:
            self.timestamp_types[row] = 1 if attributes & 0x08 else 0
        self.leader_epochs[row] = UNKNOWN
        self.producer_epochs[row] = UNKNOWN
        self.base_sequences[row] = UNKNOWN
        self.transactional[row] = 0
        self.control[row] = 0


def seek(stored: memoryview, position: int, stop: int, offset: int, timestamp: int) -> tuple[int, int]:
    """Skip complete batches that begin before `stop`, while they end below `offset` or are older than `timestamp`.

    Returns the position of the first batch not skipped, and the offset after the last skipped one (-1: none). Offset
    MAX_INT64 skips to `stop`; `timestamp` is in milliseconds, below -1 for any. Raises ValueError for a position
    outside the buffer.
    """
    if not 0 <= position <= len(stored):
        raise ValueError(f"position {position} is not in a buffer of {len(stored)} bytes")
    next_offset = -1
    end = len(stored)
    if position == end:
        return position, next_offset
    data = cython.address(stored[0]) if cython.compiled else stored
    while position < stop:
        size = batch_size_at(data, position, end)
        if size <= 0:
            break
        last_offset = int64_at(data, position)
        newest = -1
        if data[position + 16] == 2:
            last_offset += int32_at(data, position + 23)
            newest = int64_at(data, position + 35)
        elif data[position + 16] == 1:
            newest = int64_at(data, position + 18)
        if last_offset >= offset and newest >= timestamp:
            break
        if last_offset < MAX_INT64:
            next_offset = last_offset + 1
        position += size
    return position, next_offset
