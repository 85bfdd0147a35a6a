"""The calls of the compiled connection on a socket; system calls return a negative error number where they fail.

The compiled modules have the same functions in C, from ``socket_calls.pxd``; this is the truth of the pure build.
"""

from __future__ import annotations

import os


def receive_bytes(descriptor: int, buffer: bytearray, start: int) -> int:
    """Read available bytes into ``buffer`` from ``start`` on; return their number, 0 at the end of the stream."""
    try:
        return os.readv(descriptor, [memoryview(buffer)[start:]])
    except OSError as error:
        return -(error.errno or 1)


def send_gathered(descriptor: int, data: bytearray, flags: int) -> int:
    """Send bytes to a non-blocking socket; return the number of bytes that it has accepted.

    The compiled function passes the flags of send(2) on, such as MSG_MORE.
    """
    del flags
    try:
        return os.write(descriptor, data)
    except OSError as error:
        return -(error.errno or 1)
