"""Limits on the memory that ZooKeeper's clients can take, set by the keys `gregor.zookeeper.*`."""

from __future__ import annotations

from dataclasses import dataclass

from .keeper_errors import KeeperCode, KeeperError

NODE_BYTES = 600
"""Approximate memory of a node besides its path and data, as counted in the budget."""
WATCH_BYTES = 200
"""Approximate memory of a watch besides its path."""


@dataclass(frozen=True, slots=True)
class Limits:
    """A set of limits; the defaults are those of the configuration keys."""

    tick_ms: int = 3000
    min_session_timeout_ms: int = 6000
    max_session_timeout_ms: int = 60_000
    max_sessions: int = 10_000
    max_watches_per_session: int = 10_000
    max_nodes: int = 100_000
    max_bytes: int = 64 << 20
    """Memory for nodes that clients create and for watches."""
    frame_bytes: int = 0xFFFFF
    """Largest request, ZooKeeper's `jute.maxbuffer`."""


class Budget:
    """A budget of memory that nodes of clients and watches share, with a limit on the number of nodes."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.used_bytes = 0
        self.node_count = 0

    def take_node(self, size_bytes: int) -> None:
        """Count a node with its path and data. Raises KeeperError SYSTEMERROR at a limit."""
        if self.node_count >= self._limits.max_nodes:
            raise KeeperError(KeeperCode.SYSTEMERROR, "gregor.zookeeper.max.nodes is reached")
        self.take(size_bytes + NODE_BYTES)
        self.node_count += 1

    def give_node(self, size_bytes: int) -> None:
        """Stop counting a node."""
        self.used_bytes -= size_bytes + NODE_BYTES
        self.node_count -= 1

    def take(self, size_bytes: int) -> None:
        """Count memory; a negative size gives memory back. Raises KeeperError SYSTEMERROR at the limit."""
        if size_bytes > 0 and self.used_bytes + size_bytes > self._limits.max_bytes:
            raise KeeperError(KeeperCode.SYSTEMERROR, "gregor.zookeeper.max.bytes is reached")
        self.used_bytes += size_bytes
