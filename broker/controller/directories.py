"""Replicas and their log directories (KIP-858): the consequences of a failed or missing directory.

A replica whose directory its broker has lost holds no records. It is not elected, even if it was the last one in sync,
as the other replicas would then truncate their logs to its empty one; Kafka's controller elects it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from uuid import UUID

from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages.cluster_metadata_records import BrokerRegistrationChangeRecord, PartitionChangeRecord
from ...protocol.schema import Message
from ..metadata.state import UNASSIGNED, BrokerState, ClusterState, PartitionState, TopicState
from .elections import Election, Target, change_of, without
from .liveness import AllowsUnclean, is_active, leaving_one, may_lead_in, partitions_of


def assigning(
    state: ClusterState, broker: BrokerState, topic: TopicState, partition: PartitionState, directory: UUID
) -> PartitionChangeRecord | None:
    """Return the record that assigns a broker's replica to this directory; None if the metadata says so already.

    Raises BrokerError: NOT_LEADER_OR_FOLLOWER if the broker has no replica, INVALID_REQUEST if it has no such
    directory, INELIGIBLE_REPLICA if the replica was the last one in sync, in a directory that is lost, and other
    replicas still hold the replicated records: it must not count as in sync. The broker may retry once another replica
    leads.
    """
    node_id = broker.node_id
    if node_id not in partition.replicas:
        raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if directory not in broker.log_dirs:
        raise BrokerError(ErrorCode.INVALID_REQUEST)
    if partition.directory_of(node_id) == directory:
        return None
    others = without(partition.replicas, [node_id])
    is_lost = not state.holds(partition, node_id)
    if is_lost and node_id in partition.isr and any(state.holds(partition, other) for other in others):
        raise BrokerError(ErrorCode.INELIGIBLE_REPLICA)
    holds = may_lead_in(state, partition)
    change = change_of(
        topic.topic_id, partition, lambda other: is_active(state, other) if other == node_id else holds(other)
    )
    record = change or PartitionChangeRecord(partition_id=partition.index, topic_id=topic.topic_id)
    known = dict(zip(partition.replicas, partition.directories, strict=True)) | {node_id: directory}
    record.directories = [known[replica] for replica in record.replicas or partition.replicas]
    return record


def failing(
    state: ClusterState, broker: BrokerState, failed: Collection[UUID], unclean: AllowsUnclean
) -> Iterator[Message]:
    """Yield the records that take the replicas in failed directories of a broker out of service.

    Replicas that are out of service already need no record.
    """
    online = [directory for directory in broker.log_dirs if directory not in failed]
    if len(online) == len(broker.log_dirs) or not online:
        return
    yield BrokerRegistrationChangeRecord(broker_id=broker.node_id, broker_epoch=broker.epoch, log_dirs=online)
    for topic, partition in _in_sync_in(state, broker, failed):
        may_lead = may_lead_in(state, partition, gone=broker.node_id)
        yield from leaving_one(topic, partition, broker.node_id, may_lead, unclean)


def handing_over(state: ClusterState, broker: BrokerState, unwritable: Collection[UUID]) -> Iterator[Message]:
    """Yield records that move leadership and in-sync membership away from replicas in unwritable directories.

    A partition without another in-sync replica keeps its leader, as it can still be read.
    """
    for topic, partition in _in_sync_in(state, broker, unwritable):
        may_lead = may_lead_in(state, partition, gone=broker.node_id)
        isr = without(partition.isr, [broker.node_id])
        if any(map(may_lead, isr)):
            record = change_of(topic.topic_id, partition, may_lead, target=Target(isr=isr), election=Election.ONLINE)
            if record is not None:
                yield record


def _in_sync_in(
    state: ClusterState, broker: BrokerState, directories: Collection[UUID]
) -> Iterator[tuple[TopicState, PartitionState]]:
    """Yield partitions in which a broker is leader or in sync and whose replica is in one of these directories.

    A replica without an assigned directory counts as being in the broker's only directory.
    """
    for topic, partition in partitions_of(state):
        if broker.node_id in (partition.leader, *partition.isr):
            directory = partition.directory_of(broker.node_id)
            if directory == UNASSIGNED and len(broker.log_dirs) == 1:
                (directory,) = broker.log_dirs
            if directory in directories:
                yield topic, partition


def is_in(partition: PartitionState, broker: BrokerState, directories: Collection[UUID]) -> bool:
    """Return whether a broker's replica is in one of these directories."""
    return bool(directories) and partition.directory_of(broker.node_id) in directories


def leaderless_for_a_lost_directory(state: ClusterState, broker: BrokerState) -> Iterator[str]:
    """Yield names of partitions without a leader because their broker has lost the replica's directory."""
    for topic, partition in partitions_of(state):
        others = without(partition.replicas, [broker.node_id])
        is_lost = partition.isr == [broker.node_id] and not state.holds(partition, broker.node_id)
        if is_lost and any(state.holds(partition, other) for other in others):
            yield f"{topic.name}-{partition.index}"
