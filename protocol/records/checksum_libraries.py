"""CRC-32 and CRC-32C from the wheels `isal` and `crc32c`: what ``crc_simd.h`` is to the compiled kernel.

Compiled kernels do without both; `crc32c` imports the email package for its own version number, which takes a tenth
of a start.
"""

from __future__ import annotations

import crc32c
from isal import isal_zlib

from .record import Buffer


def crc_prepare() -> None:
    """Do nothing: the C version builds its tables here, the libraries have their own."""


def crc32_of(data: memoryview, start: int, end: int) -> int:
    """Compute the CRC-32 of the bytes from `start` to `end`."""
    return isal_zlib.crc32(data[start:end])


def crc32c_of(data: memoryview, start: int, end: int) -> int:
    """Compute the CRC-32C of the bytes from `start` to `end`."""
    return crc32c.crc32c(data[start:end])


def crc32_castagnoli(crc: int, data: Buffer, size_bytes: int) -> int:
    """Compute the CRC-32C of `data`, of which all `size_bytes` count, after bytes whose CRC-32C is `crc`."""
    return crc32c.crc32c(data, crc)
