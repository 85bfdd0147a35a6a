"""The conditions for which a connection waits before it continues."""

from __future__ import annotations

from enum import Enum, auto


class Need(Enum):
    """A condition without which a connection cannot continue."""

    INPUT = auto()
    TURN = auto()
    """A turn: other connections are served first."""
    ANSWER = auto()
    """The first pending answer."""
    TASK = auto()
    """The connection's own task, for the present request or its answer."""
    OUTPUT = auto()
    """The socket accepts no more of the gathered bytes."""
    QUOTA = auto()
    """The end of the client's throttle time."""
    END = auto()
    """The client has closed its side, or the broker drains: all received requests are answered."""


ASLEEP = (Need.INPUT, Need.ANSWER)
"""The needs for which the connection's own task sleeps."""
