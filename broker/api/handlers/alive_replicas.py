"""The brokers that can serve a partition, for Metadata and DescribeTopicPartitions."""

from __future__ import annotations

from ..contract import RequestContext


def alive_for(context: RequestContext, alive: frozenset[int], topic: str, index: int) -> frozenset[int]:
    """Return the brokers of ``alive`` whose replica of the partition is not known to be offline.

    This broker checks its own log directly, before the controller learns of a failure; the state of other brokers'
    replicas comes from the controller (KIP-112, KIP-858).
    """
    partitions = context.services.partitions
    if partitions.offline_count and partitions.is_offline(topic, index):
        return alive - {context.services.config.node_id}
    return alive
