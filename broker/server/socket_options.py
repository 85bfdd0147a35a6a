"""The options of listening sockets, from the configuration."""

from __future__ import annotations

from ..config import BrokerConfig
from ..config.listeners import SocketOptions


def socket_options(config: BrokerConfig) -> SocketOptions:
    """Return the options of listening sockets.

    Kafka's default of 100 kB would keep the kernel from enlarging buffers for fast clients: only sizes that are set
    are used.
    """
    return SocketOptions(
        config.socket_listen_backlog_size,
        config.socket_send_buffer_bytes if config.is_set("socket.send.buffer.bytes") else -1,
        config.socket_receive_buffer_bytes if config.is_set("socket.receive.buffer.bytes") else -1,
    )
