"""The options of listening sockets, from the configuration."""

from __future__ import annotations

from ..config import BrokerConfig
from ..config.listeners import SocketOptions

SEND_BUFFER_BYTES = 256 * 1024
"""The send buffer of a client's socket in bytes, unless ``socket.send.buffer.bytes`` is set.

The kernel would let it grow to 4 MB, more than a processor's cache: on one machine, fetches with this buffer take two
thirds of the CPU time and a third of the time on a busy machine (`make bench ARGS=tls`), and a client that does not
read holds less of the kernel's memory. Kafka's default of 100 kB is not faster on one machine, and slower for a client
that is far away.
"""


def socket_options(config: BrokerConfig) -> SocketOptions:
    """Return the options of listening sockets.

    The kernel chooses the size of receive buffers, and enlarges them for fast clients, unless their size is set.
    """
    return SocketOptions(
        config.socket_listen_backlog_size,
        config.socket_send_buffer_bytes if config.is_set("socket.send.buffer.bytes") else SEND_BUFFER_BYTES,
        config.socket_receive_buffer_bytes if config.is_set("socket.receive.buffer.bytes") else -1,
    )
