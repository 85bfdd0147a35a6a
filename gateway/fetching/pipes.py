"""The pipes through which the kernel moves fetched records from one socket to another (splice(2)).

An answer has a pipe of its own, so that it may wait for its client while the pipe holds bytes.
"""

from __future__ import annotations

import errno
import fcntl
import os

PIPE_BYTES = 256 * 1024
"""The size of a pipe, and so the most that a slow client makes a gateway keep."""
UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.EPERM, errno.EOPNOTSUPP)
"""The errors of splice(2) of a system that does not have it for sockets, or forbids it."""
MOST_IDLE = 16
"""Most pipes that are kept for the next answers."""


class Pipe:
    """A pipe that is closed with its last reference."""

    __slots__ = ("read_end", "write_end")

    def __init__(self) -> None:
        """Make a pipe of `PIPE_BYTES`. Raises OSError, also if the user's pipes have reached their limit."""
        self.read_end = self.write_end = -1
        self.read_end, self.write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        fcntl.fcntl(self.write_end, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def __del__(self) -> None:
        if self.read_end >= 0:
            os.close(self.read_end)
            os.close(self.write_end)


class Pipes:
    """The pipes of a gateway: as many as there are answers in progress."""

    def __init__(self) -> None:
        self.are_usable = True
        """Whether the system moves bytes between sockets and pipes."""
        self._idle: list[Pipe] = []

    def take(self) -> Pipe | None:
        """Return an empty pipe, None if there is none to be had."""
        if not self.are_usable:
            return None
        if self._idle:
            return self._idle.pop()
        try:
            return Pipe()
        except OSError:
            return None

    def give_back(self, pipe: Pipe, *, is_empty: bool) -> None:
        """Keep a pipe for the next answer; one that still holds bytes is closed."""
        if is_empty and len(self._idle) < MOST_IDLE:
            self._idle.append(pipe)
