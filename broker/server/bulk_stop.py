"""The reasons why a `BulkAnswer` returns to its caller."""

from __future__ import annotations

from enum import IntEnum


class BulkStop(IntEnum):
    """The reason why `BulkAnswer.run` returned."""

    SENT = 0
    """All bytes are sent."""
    FULL = 1
    """The client does not read: the socket accepts no more bytes."""
    TURN = 2
    """Other answers wait for their turn, or the answer was only to begin."""
    NEEDS_CODEC = 3
    """The caller must send the rest of the part at `row`, then call `skip_row`."""
    FAILED = 4
    """The rest of the part at `row` cannot be converted: the caller pads it, then calls `skip_row`."""
    BROKEN = 5
    """A system call failed with `error`: of the socket, or of a file."""
    FILE_HAS_ENDED = 6
    """A file is shorter than the part at `row`."""
    CANCELLED = 7
    """`cancel` was called."""
