"""The calls of `relay_cy`; system calls return a negative error number where they fail.

The compiled module has the same functions in C, from ``relay_calls.pxd``; this is the truth of the pure build.
"""

from __future__ import annotations

import os
import select
import time


def move(source: int, target: int, size_bytes: int, has_more: int) -> int:
    """Move bytes between a socket and a pipe by splice(2); return their number, 0 at the end of the stream."""
    flags = os.SPLICE_F_MOVE | os.SPLICE_F_NONBLOCK | (os.SPLICE_F_MORE if has_more else 0)
    try:
        return os.splice(source, target, size_bytes, flags=flags)
    except OSError as error:
        return -(error.errno or 1)


def wait_alone(descriptor: int, is_output: bool, first_other: int, second_other: int, timeout_ms: int) -> bool:
    """Wait until a socket is ready or has failed, or one of the others is; return whether only the socket is.

    A negative descriptor is left out.
    """
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT if is_output else select.POLLIN)
    for other in (first_other, second_other):
        if other >= 0:
            poll.register(other, select.POLLIN)
    ready = poll.poll(timeout_ms)
    return len(ready) == 1 and ready[0][0] == descriptor


def monotonic_ns() -> int:
    """Return the time of a clock that is never set, in nanoseconds."""
    return time.monotonic_ns()
