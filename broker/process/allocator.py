"""Limits of the free memory that the C library keeps after large buffers.

Worker threads allocate and free buffers of 100 kB to 20 MB for each compressed batch. By default glibc adapts its two
thresholds to the largest mapped buffer that was freed (mallopt(3), "dynamic mmap threshold"). After one buffer of 19 MB
the arena of each thread may keep 38 MB, and until then each buffer of 1 MB is mapped, faulted in page by page and
unmapped, which takes two thirds of a conversion's CPU time. With fixed thresholds the kept memory is bounded, and the
buffers of usual batches are used again without page faults.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping

M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
M_ARENA_MAX = -8
"""Parameters of mallopt in glibc's malloc.h."""
KEPT_BYTES = 8 << 20
"""The free memory at the end of an arena above which glibc returns that memory to the system.

A batch of 1 MB needs less than 8 MiB to be decompressed, converted and compressed."""
MAPPED_BYTES = 4 << 20
"""The size from which glibc maps a buffer by itself, so that its memory is returned as soon as the buffer is freed."""
ARENAS = 2
"""The event loop's thread has one arena, the worker threads share the other: the interpreter lock keeps them from
contending for it."""
OPERATOR_VARIABLES = ("MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")
"""Environment variables with which an operator sets these parameters."""


def limit_kept_memory(environment: Mapping[str, str] = os.environ, libc: object | None = None) -> bool:
    """Fix the thresholds of this process's allocator and return whether they were fixed.

    Returns False where the C library has no mallopt (musl, macOS) or one of `OPERATOR_VARIABLES` is set. The thresholds
    apply to the whole process, so only a program may call this function, never a library.
    """
    if any(variable in environment for variable in OPERATOR_VARIABLES):
        return False
    mallopt = getattr(libc or ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    parameters = ((M_MMAP_THRESHOLD, MAPPED_BYTES), (M_TRIM_THRESHOLD, KEPT_BYTES), (M_ARENA_MAX, ARENAS))
    return all(mallopt(parameter, value) == 1 for parameter, value in parameters)
