"""The options of listening sockets, from the configuration."""

from __future__ import annotations

from ..config import BrokerConfig
from ..config.listeners import SocketOptions

SEND_BUFFER_BYTES = 256 * 1024
"""The send buffer of a client's socket in bytes, unless ``socket.send.buffer.bytes`` is set.

The kernel would let it grow to 4 MB, and a client that does not read would hold as much of the kernel's memory. Kafka's
default of 100 kB is slower for a client that is far away, and for one on the same machine, which has read all of it and
sleeps before the broker has sent more (``docs/performance.md``).
"""

LISTEN_BACKLOG = 1024
"""The connections that may wait at a listener to be accepted, unless ``socket.listen.backlog.size`` is set.

Linux drops further ones, whose clients try again after 1, 3 and 7 seconds. With Kafka's default of 50 that happens to
some of a hundred clients that connect at once, as after a restart of the broker.
"""


def socket_options(config: BrokerConfig) -> SocketOptions:
    """Return the options of listening sockets.

    The kernel chooses the size of receive buffers, and enlarges them for fast clients, unless their size is set.
    """
    is_set = config.is_set("socket.send.buffer.bytes")
    return SocketOptions(
        config.socket_listen_backlog_size if config.is_set("socket.listen.backlog.size") else LISTEN_BACKLOG,
        config.socket_send_buffer_bytes if is_set else SEND_BUFFER_BYTES,
        config.socket_receive_buffer_bytes if config.is_set("socket.receive.buffer.bytes") else -1,
    )
