"""The aborted transactions that end in one segment: Kafka's `.txnindex` file, for `read_committed` readers.

Entries of 34 bytes, in the order in which the transactions ended: int16 version (0), int64 producer id,
first offset, last offset (the marker's), last stable offset when it ended.
Source: Kafka `TransactionIndex` and `AbortedTxn`.
"""

from __future__ import annotations

import zlib
from struct import Struct
from typing import NamedTuple

from ..disk.files import Files

ENTRY = Struct(">hqqqq")
VERSION = 0


class AbortedTransaction(NamedTuple):
    """An aborted transaction, whose records `read_committed` readers skip; offsets are inclusive."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndexDamagedError(Exception):
    """A transaction index with invalid contents; `TransactionIndex.rewrite` repairs it."""


class TransactionIndex:
    """The aborted transactions of one segment; the file exists only if there are any.

    If `expected_crc` is known, all methods except `rewrite` raise TransactionIndexDamagedError for a file with another
    CRC.
    """

    __slots__ = ("_entries", "_files", "expected_crc", "path")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._entries: list[AbortedTransaction] | None = None
        self.expected_crc: int | None = None
        self.path = path

    def add(self, transaction: AbortedTransaction) -> None:
        """Append a transaction that ended after all others, unless it is present already. Raises OSError."""
        entries = self.entries()
        if entries and entries[-1].last_offset >= transaction.last_offset:
            return
        file = self._files.open(self.path, create=True)
        try:
            file.write_at(ENTRY.pack(VERSION, *transaction), len(entries) * ENTRY.size)
        finally:
            file.close()
        entries.append(transaction)

    def entries(self) -> list[AbortedTransaction]:
        """Return all entries in order, up to the first unreadable (for example incomplete) entry."""
        if self._entries is None:
            try:
                data = self._files.read(self.path)
            except FileNotFoundError:
                data = b""
            if self.expected_crc is not None and zlib.crc32(data) != self.expected_crc:
                raise TransactionIndexDamagedError(f"{self.path}: the CRC does not match")
            self._entries = parse_entries(data)
        return self._entries

    def crc(self) -> int:
        """Return the CRC-32 of the content that the file should have, 0 for no file."""
        if self._entries is None and self.expected_crc is not None:
            return self.expected_crc
        return zlib.crc32(_format(self.entries()))

    def truncate_to(self, offset: int) -> None:
        """Remove transactions that ended at or after `offset`. Raises OSError."""
        self.rewrite([entry for entry in self.entries() if entry.last_offset < offset])

    def rewrite(self, kept: list[AbortedTransaction]) -> None:
        """Replace the entries by `kept`. Raises OSError."""
        if not kept:
            self._files.remove(self.path)
        elif kept != self._entries:
            self._files.replace(self.path, _format(kept))
        self._entries = kept

    def sync(self) -> None:
        """Flush the file, if it exists, to the disk. Raises OSError."""
        if self._entries:
            file = self._files.open(self.path)
            try:
                file.sync()
            finally:
                file.close()


def _format(entries: list[AbortedTransaction]) -> bytes:
    return b"".join(ENTRY.pack(VERSION, *entry) for entry in entries)


def parse_entries(data: bytes) -> list[AbortedTransaction]:
    """Parse the entries of a file up to the first invalid entry."""
    entries: list[AbortedTransaction] = []
    for position in range(0, len(data) - ENTRY.size + 1, ENTRY.size):
        version, *fields = ENTRY.unpack_from(data, position)
        entry = AbortedTransaction(*fields)
        if version != VERSION or not 0 <= entry.first_offset <= entry.last_offset:
            break
        entries.append(entry)
    return entries
