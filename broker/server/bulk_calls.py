"""The calls of `bulk_answer_cy` and `bulk_chunk_cy`; system calls return a negative error number where they fail.

The compiled module has the same functions in C, from ``bulk_calls.pxd``; this is the truth of the pure build.
"""

from __future__ import annotations

import os
import select
import time

from ...protocol.records import v2
from ...protocol.records.batches import MAGIC_AT
from ...protocol.records.compression import DEFAULT_LIMIT_BYTES
from ...protocol.records.kernel_cy import DownConversion
from ...protocol.records.message_bytes import batch_size_at
from ...protocol.records.padding import FAKE_BATCH_BYTES, padding
from ...protocol.records.recompression_cy import Recompression
from ...storage.log.file_reads import FILE_HAS_ENDED


def send_bytes(descriptor: int, buffer: memoryview, start: int, end: int, has_more: int) -> int:
    """Send bytes to a non-blocking socket; return their number, or a negative error number.

    The compiled function lets the kernel wait for the following bytes if there are some (MSG_MORE).
    """
    try:
        return os.write(descriptor, buffer[start:end])
    except OSError as error:
        return -(error.errno or 1)


def send_file(descriptor: int, file: int, position: int, size_bytes: int) -> int:
    """Send a range of a file by sendfile(2); return the number of bytes, or a negative number."""
    try:
        return os.sendfile(descriptor, file, position, size_bytes) or FILE_HAS_ENDED
    except OSError as error:
        return -(error.errno or 1)


def wait_writable(descriptor: int, timeout_ms: int) -> int:
    """Wait until a socket accepts bytes or has failed; return whether it does so before the time has passed."""
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return len(poll.poll(timeout_ms))


def thread_cpu_ns() -> int:
    """Return the CPU time of this thread in nanoseconds."""
    return time.thread_time_ns()


def convert_into(
    conversion: DownConversion, stored: memoryview, stored_bytes: int, out: memoryview, filled: int, capacity: int
) -> int:
    """Convert the first ``stored_bytes`` into ``out`` from ``filled`` on; return the position after the messages."""
    return conversion.fill(stored, stored_bytes, out[:capacity], filled)


def recompress_next(
    recompression: Recompression, conversion: DownConversion, stored: memoryview, stored_bytes: int
) -> int:
    """Convert the compressed batch at the conversion's position; return its size, 0 if only other code can."""
    at = conversion.position
    size = batch_size_at(stored, at, stored_bytes)
    if size <= 0 or stored[at + MAGIC_AT] != v2.MAGIC:
        return 0
    return recompression.convert_unlocked(stored, at, size, conversion.to_magic, DEFAULT_LIMIT_BYTES)


def begin_conversion(conversion: DownConversion, to_magic: int, first_offset: int) -> None:
    """Begin another conversion, at the first of its bytes."""
    conversion.begin(to_magic, first_offset, 0)


def put_padding(out: memoryview, start: int, end: int, padded: int, left: int) -> int:
    """Put the next bytes of padding into ``out`` from ``start`` to at most ``end``; return their number.

    ``padded`` bytes of it were put before, ``left`` follow. Source of the bytes: `padding`.
    """
    within = padded % FAKE_BATCH_BYTES
    size_bytes = min(end - start, left)
    pieces = b"".join(padding(left + within))
    out[start : start + size_bytes] = pieces[within : within + size_bytes]
    return size_bytes
