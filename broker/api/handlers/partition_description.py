"""The description of a partition in Metadata and DescribeTopicPartitions: its leader and its offline replicas."""

from __future__ import annotations

from typing import TypeVar

from ....protocol.errors import ErrorCode
from ....protocol.messages.describe_topic_partitions import DescribeTopicPartitionsResponsePartition
from ....protocol.messages.metadata import MetadataResponsePartition
from ...metadata.state import NO_LEADER, PartitionState
from ..contract import RequestContext

Description = TypeVar("Description", MetadataResponsePartition, DescribeTopicPartitionsResponsePartition)


def describe_partition(
    kind: type[Description], context: RequestContext, topic: str, partition: PartitionState, alive: frozenset[int]
) -> Description:
    """Return the description of a partition, an instance of ``kind``; ``alive`` are the ids of brokers that serve."""
    alive = _with_replica_online(context, alive, topic, partition.index)
    has_leader = partition.leader in alive
    return kind(
        error_code=ErrorCode.NONE if has_leader else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=partition.index,
        leader_id=partition.leader if has_leader else NO_LEADER,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        offline_replicas=[]
        if alive.issuperset(partition.replicas)
        else [replica for replica in partition.replicas if replica not in alive],
    )


def _with_replica_online(context: RequestContext, alive: frozenset[int], topic: str, index: int) -> frozenset[int]:
    """Return the brokers of ``alive`` whose replica of the partition is not known to be offline.

    This broker checks its own log directly, before the controller learns of a failure; the state of other brokers'
    replicas comes from the controller (KIP-112, KIP-858).
    """
    partitions = context.services.partitions
    if partitions.offline_count and partitions.is_offline(topic, index):
        return alive - {context.services.config.node_id}
    return alive
