"""The congestion control of connections, where the system's paces their segments.

BBR sends each segment at a time of its own, for which the kernel sets a timer. On the way to a client on this machine,
which cannot be congested, that is a timer for each 64 kB, and these take a third of the CPU time of a large answer
(``docs/performance.md``). A socket that was once paced stays so, and the handshake begins it; so listening sockets
have Reno, and clients on other machines get the system's congestion control back when they are accepted.
"""

from __future__ import annotations

import contextlib
import socket

PACING_PREFIX = b"bbr"
"""The names of all versions of BBR begin so."""
UNPACED = b"reno"
"""A congestion control that each Linux has, and that each user may choose."""
LONGEST_NAME = 16
"""TCP_CA_NAME_MAX of Linux."""


def stop_pacing(listening: socket.socket) -> bytes:
    """Let the connections to a listening socket not be paced; return the name for `pace`, empty if they were not."""
    option = getattr(socket, "TCP_CONGESTION", None)
    if option is None:
        return b""
    try:
        name = listening.getsockopt(socket.IPPROTO_TCP, option, LONGEST_NAME).rstrip(b"\0")
        if not name.startswith(PACING_PREFIX):
            return b""
        listening.setsockopt(socket.IPPROTO_TCP, option, UNPACED)
    except OSError:
        # The system allows no choice: all connections are paced.
        return b""
    return name


def pace(connected: socket.socket, name: bytes) -> None:
    """Give the connection of a remote client the congestion control ``name`` of the system; do nothing if empty."""
    if name:
        with contextlib.suppress(OSError):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name)
