"""The map from keys to their last offsets that one compaction uses, of limited size (Kafka `SkimpyOffsetMap`).

An entry has 24 bytes: the MD5 digest of the key, and the offset. Keys are never compared, so two keys with one digest
count as one key; only a client that may write to the topic could construct such keys.
"""

from __future__ import annotations

import hashlib
from struct import Struct

DIGEST_BYTES = 16
SLOT = Struct(">16sq")
LOAD_FACTOR = 0.9
"""Kafka's default of `log.cleaner.io.buffer.load.factor`: the largest used share of the table."""

LEAST_LOAD_FACTOR, MOST_LOAD_FACTOR = 0.1, 0.99
"""The least number of slots: at least one key must fit, and a search ends at an empty slot."""

_EMPTY = bytes(DIGEST_BYTES)
MIN_SLOTS = 64


class OffsetMap:
    """A map from keys to offsets that grows up to `limit_bytes` (`log.cleaner.dedupe.buffer.size`)."""

    def __init__(self, limit_bytes: int, load_factor: float = LOAD_FACTOR) -> None:
        self._load_factor = min(max(load_factor, LEAST_LOAD_FACTOR), MOST_LOAD_FACTOR)
        self._most_slots = max(limit_bytes // SLOT.size, MIN_SLOTS)
        self._slots = MIN_SLOTS
        self._table = bytearray(self._slots * SLOT.size)
        self._count = 0
        self.end_offset = -1
        """All records up to this offset are in the map; -1 if it is empty."""

    def __len__(self) -> int:
        return self._count

    @property
    def utilization(self) -> float:
        """Return the used share of the limit, 0 to 1."""
        return self._count / self._most_slots

    @property
    def is_full(self) -> bool:
        """Return whether no new key fits."""
        return self._count >= int(self._most_slots * self._load_factor)

    def put(self, key: bytes, offset: int) -> bool:
        """Set the last offset of `key` to the larger `offset`; return False if a new key does not fit."""
        digest = _digest(key)
        position, is_known = self._find(digest)
        if not is_known:
            if self.is_full:
                return False
            if self._count >= int(self._slots * self._load_factor):
                self._grow()
                position, _ = self._find(digest)
            self._count += 1
        SLOT.pack_into(self._table, position, digest, offset)
        return True

    def get(self, key: bytes) -> int:
        """Return the last offset of `key`, -1 if `key` is not in the map."""
        position, is_known = self._find(_digest(key))
        offset: int = SLOT.unpack_from(self._table, position)[1]
        return offset if is_known else -1

    def _find(self, digest: bytes) -> tuple[int, bool]:
        """Return the place of the digest, or the place where the digest would be inserted."""
        table, slots = self._table, self._slots
        slot = int.from_bytes(digest[:8], "big") % slots
        while True:
            position = slot * SLOT.size
            found = table[position : position + DIGEST_BYTES]
            if found == digest:
                return position, True
            if found == _EMPTY:
                return position, False
            slot = slot + 1 if slot + 1 < slots else 0

    def _grow(self) -> None:
        old = self._table
        self._slots = min(self._slots * 4, self._most_slots)
        self._table = bytearray(self._slots * SLOT.size)
        for digest, offset in SLOT.iter_unpack(old):
            if digest != _EMPTY:
                position, _ = self._find(digest)
                SLOT.pack_into(self._table, position, digest, offset)


def _digest(key: bytes) -> bytes:
    return hashlib.md5(key, usedforsecurity=False).digest()
