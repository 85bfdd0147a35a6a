"""The followers in a consumer's rack that leaders have named to read from (KIP-392)."""

from __future__ import annotations

import trio

from ...protocol.topic_partition import AnyTopicPartition


class PreferredReplicas:
    """The broker to read each partition from instead of its leader.

    Each entry is valid for ``metadata.max.age.ms`` (as in Kafka), then the leader is asked again; after any failure
    the leader is asked at once.
    """

    def __init__(self, lease_ms: int) -> None:
        self._lease_s = lease_ms / 1000
        self._leased: dict[AnyTopicPartition, tuple[int, float]] = {}

    def prefer(self, place: AnyTopicPartition, node: int) -> None:
        """Read a partition from this broker from now on."""
        self._leased[place] = (node, trio.current_time() + self._lease_s)

    def get(self, place: AnyTopicPartition) -> int | None:
        """Return the broker to read from; None for the leader."""
        node, ends_at = self._leased.get(place, (None, 0.0))
        if node is not None and trio.current_time() >= ends_at:
            del self._leased[place]
            return None
        return node

    def forget(self, place: AnyTopicPartition) -> bool:
        """Read a partition from its leader again; return whether it was read from another broker."""
        return self._leased.pop(place, None) is not None
