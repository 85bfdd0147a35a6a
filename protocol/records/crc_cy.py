"""The checksums of stored records: CRC-32 of formats v0 and v1, CRC-32C of format v2.

This is ordinary Python that is also compiled, like ``kernel_cy``. No other compiled module contains ``crc_simd.c``; the
others call `crc32_between` and `crc32c_between`. As plain Python they use ``checksum_libraries``.
"""

from __future__ import annotations

from .record import Buffer

try:
    import cython
except ImportError:
    from . import cython_stand_in as cython

if not cython.compiled:
    from .checksum_libraries import crc32_castagnoli, crc32_of, crc32c_of, crc_prepare

crc_prepare()

COMPILED: bool = cython.compiled
"""Whether this module is compiled."""


def crc32(data: memoryview) -> int:
    """Return the CRC-32 (zlib's) of all of `data`."""
    source = cython.address(data[0]) if cython.compiled else data
    return crc32_of(source, 0, len(data))


def crc32c(data: Buffer, crc: int = 0) -> int:
    """Return the CRC-32C (Castagnoli's) of all of `data`, after bytes whose CRC-32C is `crc`."""
    source = cython.address(data[0]) if cython.compiled else data
    return crc32_castagnoli(crc, source, len(data))


def crc32_between(data: memoryview, start: int, end: int) -> int:
    """Return the CRC-32 of the bytes from `start` to `end`."""
    return crc32_of(data, start, end)


def crc32c_between(data: memoryview, start: int, end: int) -> int:
    """Return the CRC-32C of the bytes from `start` to `end`."""
    return crc32c_of(data, start, end)
