"""Reads of files by compiled modules, which use the same function in C, from ``file_reads.pxd``."""

from __future__ import annotations

import os

FILE_HAS_ENDED = -1_000_000
"""The result of a read behind the end of the file; no error number is as large."""


def read_at(descriptor: int, buffer: bytearray | memoryview, start: int, size_bytes: int, position: int) -> int:
    """Read a range of a file into the buffer from ``start`` on; return 0 or a negative number.

    That is a negative error number, or `FILE_HAS_ENDED`.
    """
    read = 0
    view = memoryview(buffer)
    while read < size_bytes:
        try:
            count = os.preadv(descriptor, [view[start + read : start + size_bytes]], position + read)
        except OSError as error:
            return -(error.errno or 1)
        if count == 0:
            return FILE_HAS_ENDED
        read += count
    return 0
