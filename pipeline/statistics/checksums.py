"""Order-independent sums over records, which compare the contents of two places.

A record's hash mixes the CRC-32C of its key and value with its offset; sums are modulo 2**63.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from crc32c import crc32c

MODULUS = 2**63
NULL = 0xFFFF_FFFF
"""The value that stands for the CRC of a null; the CRC of an empty text differs."""

Hashes: TypeAlias = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E37_79B9_7F4A_7C15)
_MIX = np.uint64(0xBF58_476D_1CE4_E5B9)
_HALF = np.uint64(32)


def sum_of_places(topic: str, partition: int, offsets: pa.Array, columns: Sequence[pa.Array]) -> int:
    """Return the sum over records of the hash of (topic, partition, offset) and the binary columns."""
    seed = np.uint64(crc32c(f"{topic}-{partition}".encode()))
    places = offsets.to_numpy(zero_copy_only=False).astype(np.uint64) * _GOLDEN + seed
    return _sum(_contents(columns, len(offsets)) ^ _mixed(places))


def content_hashes(columns: Sequence[pa.Array], rows: int) -> Hashes:
    """Return a hash of each record's binary columns, independent of its offset."""
    return _contents(columns, rows)


def unique_hashes(hashes: Sequence[Hashes]) -> tuple[Hashes, int]:
    """Return the different hashes, and the sum of all."""
    joined = np.concatenate(hashes) if hashes else np.zeros(0, np.uint64)
    return np.unique(joined), _sum(joined)


def _contents(columns: Sequence[pa.Array], rows: int) -> Hashes:
    hashes: Hashes = np.zeros(rows, np.uint64)
    for column in columns:
        hashes = _mixed(hashes * _GOLDEN + _crcs(column))
    return hashes


def _crcs(column: pa.Array) -> Hashes:
    if column.null_count == len(column):
        return np.full(len(column), NULL, np.uint64)
    values = column.to_pylist()
    if column.null_count:
        return np.fromiter((NULL if value is None else crc32c(value) for value in values), np.uint64, len(values))
    return np.fromiter(map(crc32c, values), np.uint64, len(values))


def _mixed(hashes: Hashes) -> Hashes:
    mixed: Hashes = (hashes ^ (hashes >> _HALF)) * _MIX
    mixed ^= mixed >> _HALF
    return mixed


def _sum(hashes: Hashes) -> int:
    return int(_mixed(hashes).sum(dtype=np.uint64)) % MODULUS
