"""Which brokers can serve a partition, as clients are told in Metadata and DescribeTopicPartitions."""

from __future__ import annotations

from ..contract import RequestContext


def alive_for(context: RequestContext, alive: frozenset[int], topic: str, index: int) -> frozenset[int]:
    """Return those of the brokers that are ``alive`` whose replica is not known to be offline.

    This broker knows that of its own logs alone, before the controller has heard of it; others are the controller's to
    tell (KIP-112, KIP-858).
    """
    partitions = context.services.partitions
    if partitions.offline_count and partitions.is_offline(topic, index):
        return alive - {context.services.config.node_id}
    return alive
