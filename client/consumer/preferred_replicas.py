"""Followers that leaders have told a consumer to read from, as they are in its rack (KIP-392)."""

from __future__ import annotations

import trio

from .subscription import TopicPartition


class PreferredReplicas:
    """By partition the broker to read from instead of the leader.

    Each is good for a while (Kafka: ``metadata.max.age.ms``), then the leader is asked again; and for as long as it
    serves: after any trouble the leader is asked at once.
    """

    def __init__(self, lease_ms: int) -> None:
        self._lease_s = lease_ms / 1000
        self._leased: dict[TopicPartition, tuple[int, float]] = {}

    def prefer(self, place: TopicPartition, node: int) -> None:
        """Read a partition from this broker from now on."""
        self._leased[place] = (node, trio.current_time() + self._lease_s)

    def get(self, place: TopicPartition) -> int | None:
        """The broker to read from; None for the leader."""
        node, ends_at = self._leased.get(place, (None, 0.0))
        if node is not None and trio.current_time() >= ends_at:
            del self._leased[place]
            return None
        return node

    def forget(self, place: TopicPartition) -> bool:
        """Read it from its leader again; whether it was read elsewhere."""
        return self._leased.pop(place, None) is not None
