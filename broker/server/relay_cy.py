"""Bytes that go from one socket to another through a pipe: `Relay`.

One compiled loop moves them by splice(2), without a copy, without the interpreter's lock, and waits for both sockets
while nothing else needs the event loop. In ordinary Python the loop took as much CPU time as the kernel's work.

This is ordinary Python that is also compiled: ``relay_cy.pxd`` has the C types.
"""

from __future__ import annotations

import errno
from enum import IntEnum

try:
    import cython
except ImportError:
    from ...protocol.records import cython_stand_in as cython

if not cython.compiled:
    from .relay_calls import monotonic_ns, move, wait_alone


class RelayStop(IntEnum):
    """A reason why `Relay.run` returns."""

    MOVED = 0
    """All bytes have been accepted by the target."""
    NEEDS_INPUT = 1
    """The source has no bytes now."""
    FULL = 2
    """The target accepts no bytes now."""
    TURN = 3
    """Other tasks must have their turn before the next bytes."""
    SOURCE_HAS_FAILED = 4
    """The source has ended, with `error` 0, or has failed."""
    TARGET_HAS_FAILED = 5


MOVED, NEEDS_INPUT, FULL, TURN, SOURCE_HAS_FAILED, TARGET_HAS_FAILED = map(int, RelayStop)
WOULD_WAIT = -errno.EAGAIN
WAIT_MS = 2
"""The longest single wait: a peer that needs longer has paused."""
TURN_BYTES = 1024 * 1024
"""The bytes after which other tasks get their turn, unless there was a wait, in which none needed it."""
NS_OF_MS = 1_000_000


class Relay:
    """The move of ``left_bytes`` from a socket to another one, both plain and non-blocking, through an empty pipe.

    `held_bytes` are in the pipe; `left_bytes` were not taken from the source; `error` is that of a failed system call.
    """

    def __init__(self, source: int, target: int, pipe: tuple[int, int], pipe_bytes: int, left_bytes: int) -> None:
        """Take descriptors, those of the pipe to read from and to write to, and how many bytes it takes."""
        self._source = source
        self._target = target
        self._pipe_out, self._pipe_in = pipe
        self._pipe_bytes = pipe_bytes
        self.left_bytes = left_bytes
        self.held_bytes = 0
        self.error = 0

    def run(self, quiet_ms: int, first_other: int, second_other: int) -> int:
        """Move bytes until a wait through the event loop is due; return the `RelayStop`.

        For ``quiet_ms`` nothing but the sockets and the two other descriptors (-1 for none) needs the event loop; with
        0 there is no wait.
        """
        with cython.nogil:
            return self._run(quiet_ms, first_other, second_other)

    def _run(self, quiet_ms: int, first_other: int, second_other: int) -> int:
        end_ns = monotonic_ns() + quiet_ms * NS_OF_MS
        turn_bytes = 0
        while self.held_bytes > 0 or self.left_bytes > 0:
            if turn_bytes >= TURN_BYTES:
                return TURN
            is_output = self.held_bytes > 0
            if is_output:
                count = move(self._pipe_out, self._target, self.held_bytes, self.left_bytes > 0)
                if count > 0:
                    self.held_bytes -= count
                    turn_bytes += count
                    continue
            else:
                count = move(self._source, self._pipe_in, min(self.left_bytes, self._pipe_bytes), False)
                if count > 0:
                    self.left_bytes -= count
                    self.held_bytes = count
                    continue
            if count != WOULD_WAIT:
                self.error = -count
                return TARGET_HAS_FAILED if is_output else SOURCE_HAS_FAILED
            left_ms = min((end_ns - monotonic_ns()) // NS_OF_MS, WAIT_MS)
            if left_ms <= 0 or not wait_alone(
                self._target if is_output else self._source, is_output, first_other, second_other, left_ms
            ):
                return FULL if is_output else NEEDS_INPUT
            turn_bytes = 0
        return MOVED
