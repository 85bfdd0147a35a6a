"""The new leaders that brokers name when they refuse a Produce or Fetch (KIP-951)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from ...protocol.errors import ErrorCode
from .cluster import Cluster

MOVED_LEADER_CODES = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
"""Refusals in which a broker names the current leader of the partition, if known to the broker."""


class Endpoint(Protocol):
    """The address of a leader in an answer."""

    node_id: int
    host: str
    port: int


class CurrentLeader(Protocol):
    """The leader that a broker names in the answer for a partition, -1 for none."""

    leader_id: int
    leader_epoch: int


class LeaderHints:
    """The leaders named in one answer, and their addresses."""

    def __init__(self, cluster: Cluster, endpoints: Iterable[Endpoint]) -> None:
        self._cluster = cluster
        self._endpoints = {endpoint.node_id: (endpoint.host, endpoint.port) for endpoint in endpoints}

    def take(self, topic: str, partition: int, error_code: int, leader: CurrentLeader) -> bool:
        """Store the leader that a refusal names; return whether the leader is new, so that the request may be repeated
        there at once.
        """
        return error_code in MOVED_LEADER_CODES and self._cluster.take_leader_hint(
            topic, partition, leader.leader_id, leader.leader_epoch, self._endpoints
        )
