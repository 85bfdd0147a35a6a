"""Replicas and the log directories that they are in (KIP-858): what it means that one fails, or is not there any more.

A replica whose directory its broker has not got any more holds nothing. It is not elected, although it was the last one
in sync, as it would have the others cut their logs to its empty one; Kafka's controller elects it.
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
    """The record that a broker's replica is in this directory; None if that is known.

    Raises BrokerError: NOT_LEADER_OR_FOLLOWER if the broker has no replica, INVALID_REQUEST if it has no such
    directory, INELIGIBLE_REPLICA where the replica was the last one in sync, in a directory that is lost, and others
    still hold what was replicated: it must not count as what it was. Once another one leads, it may be asked again.
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
    """Records that take what is in these directories of a broker out of service, unless that is known."""
    online = [directory for directory in broker.log_dirs if directory not in failed]
    if len(online) == len(broker.log_dirs) or not online:
        return
    yield BrokerRegistrationChangeRecord(broker_id=broker.node_id, broker_epoch=broker.epoch, log_dirs=online)
    for topic, partition in _in_sync_in(state, broker, failed):
        may_lead = may_lead_in(state, partition, gone=broker.node_id)
        yield from leaving_one(topic, partition, broker.node_id, may_lead, unclean)


def handing_over(state: ClusterState, broker: BrokerState, unwritable: Collection[UUID]) -> Iterator[Message]:
    """Records by which others lead, and are in sync alone, what is in directories that take no writes.

    What has no other in-sync replica stays, as it can still be read.
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
    """Partitions that a broker leads or is in sync in, and has in one of these directories, or in its only one."""
    for topic, partition in partitions_of(state):
        if broker.node_id in (partition.leader, *partition.isr):
            directory = partition.directory_of(broker.node_id)
            if directory == UNASSIGNED and len(broker.log_dirs) == 1:
                (directory,) = broker.log_dirs
            if directory in directories:
                yield topic, partition


def is_in(partition: PartitionState, broker: BrokerState, directories: Collection[UUID]) -> bool:
    """Whether a broker's replica is in one of these directories."""
    return bool(directories) and partition.directory_of(broker.node_id) in directories


def leaderless_for_a_lost_directory(state: ClusterState, broker: BrokerState) -> Iterator[str]:
    """Names of partitions that wait for a directory which their broker has not got any more."""
    for topic, partition in partitions_of(state):
        others = without(partition.replicas, [broker.node_id])
        is_lost = partition.isr == [broker.node_id] and not state.holds(partition, broker.node_id)
        if is_lost and any(state.holds(partition, other) for other in others):
            yield f"{topic.name}-{partition.index}"
