"""Selection of the replica from which a consumer reads: one in its own rack, if the leader is in another (KIP-392).

Source: Kafka `RackAwareReplicaSelector`, `ReplicaManager.findPreferredReadReplica`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...metadata.state import BrokerState
from ..partition import Partition
from ..replication.leadership import Leadership


@dataclass(frozen=True, slots=True)
class RackAwareSelector:
    """A selector of replicas for one consumer."""

    rack: str
    """The consumer's rack (`client.rack`)."""
    listener_name: str
    """The listener over which the consumer is connected, which the other broker must have."""
    brokers: Mapping[int, BrokerState]

    def find(self, partition: Partition, fetch_offset: int) -> int | None:
        """Return the broker to read from at ``fetch_offset``; None for this broker, or if it does not lead.

        Of the in-sync followers in the consumer's rack that have the offset, it is the one with the largest log end
        offset.
        """
        leadership = partition.leadership
        if leadership is None or self._is_near(leadership.rules.node_id):
            return None
        near = [
            node_id
            for node_id in leadership.in_sync
            if node_id in leadership.followers and self._is_near(node_id) and _holds(leadership, node_id, fetch_offset)
        ]
        return max(near, key=lambda node_id: _merit(leadership, node_id), default=None)

    def _is_near(self, node_id: int) -> bool:
        broker = self.brokers.get(node_id)
        return broker is not None and broker.rack == self.rack and self.listener_name in broker.endpoints


def _holds(leadership: Leadership, node_id: int, offset: int) -> bool:
    follower = leadership.followers[node_id]
    return follower.log_start_offset <= offset <= follower.log_end_offset


def _merit(leadership: Leadership, node_id: int) -> tuple[int, int, int]:
    follower = leadership.followers[node_id]
    return follower.log_end_offset, follower.caught_up_ms, node_id
