"""AlterPartition: changes of in-sync sets that leaders request (KIP-497; Kafka
`ReplicationControlManager.alterPartition`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages.alter_partition import PartitionData, PartitionDataResponse
from ...protocol.messages.cluster_metadata_records import PartitionChangeRecord
from ..metadata.state import ClusterState, PartitionState, TopicState
from .elections import Target, change_of
from .liveness import may_lead_in

ANY_EPOCH = -1
FIRST_VERSION_WITH_NEW_LEADER = 1
"""First version whose leaders know NEW_LEADER_ELECTED; older ones get FENCED_LEADER_EPOCH."""


def wanted_isr(wanted: PartitionData) -> list[tuple[int, int]]:
    """Return the broker ids and epochs of the requested in-sync set; an epoch of -1 is any."""
    if wanted.new_isr_with_epochs:
        return [(replica.broker_id, replica.broker_epoch) for replica in wanted.new_isr_with_epochs]
    return [(node_id, ANY_EPOCH) for node_id in wanted.new_isr]


def altering(
    state: ClusterState,
    topic: TopicState,
    wanted: PartitionData,
    leader_id: int,
    is_writable: Callable[[PartitionState, int], bool] = lambda *_: True,
) -> PartitionChangeRecord | None:
    """Return the record that sets the in-sync set that the leader requests; None if it is set already.

    A replica that is lost, or not ``is_writable``, cannot join.
    Raises BrokerError: UNKNOWN_TOPIC_OR_PARTITION, FENCED_LEADER_EPOCH, NOT_CONTROLLER (the leader has newer metadata
    than this controller), INVALID_UPDATE_VERSION, INVALID_REQUEST, INELIGIBLE_REPLICA.
    """
    partition = find_partition(topic, wanted.partition_index)
    if wanted.leader_epoch < partition.leader_epoch:
        raise BrokerError(ErrorCode.FENCED_LEADER_EPOCH)
    if wanted.leader_epoch > partition.leader_epoch or wanted.partition_epoch > partition.partition_epoch:
        raise BrokerError(ErrorCode.NOT_CONTROLLER)
    if leader_id != partition.leader:
        raise BrokerError(ErrorCode.INVALID_REQUEST)
    if wanted.partition_epoch < partition.partition_epoch:
        raise BrokerError(ErrorCode.INVALID_UPDATE_VERSION)
    isr = wanted_isr(wanted)
    _check_members(state, partition, isr)
    for node_id, _ in isr:
        if node_id not in partition.isr and not (state.holds(partition, node_id) and is_writable(partition, node_id)):
            raise BrokerError(ErrorCode.INELIGIBLE_REPLICA)
    return change_of(
        topic.topic_id,
        partition,
        may_lead_in(state, partition),
        target=Target(isr=[node_id for node_id, _ in isr]),
    )


def _check_members(state: ClusterState, partition: PartitionState, isr: Sequence[tuple[int, int]]) -> None:
    members = [node_id for node_id, _ in isr]
    if partition.leader not in members or len(set(members)) < len(members) or not set(members) <= {*partition.replicas}:
        raise BrokerError(ErrorCode.INVALID_REQUEST)
    for node_id, epoch in isr:
        broker = state.brokers.get(node_id)
        if broker is None or not broker.is_active or epoch not in (ANY_EPOCH, broker.epoch):
            raise BrokerError(ErrorCode.INELIGIBLE_REPLICA)


def find_partition(topic: TopicState, index: int) -> PartitionState:
    """Return a partition of a topic. Raises BrokerError UNKNOWN_TOPIC_OR_PARTITION."""
    if not 0 <= index < len(topic.partitions):
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return topic.partitions[index]


def altered(partition: PartitionState) -> PartitionDataResponse:
    """Return the present state of a partition, as an answer to its leader."""
    return PartitionDataResponse(
        partition_index=partition.index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=partition.isr,
        partition_epoch=partition.partition_epoch,
    )


def refused(index: int, code: ErrorCode) -> PartitionDataResponse:
    """Return an answer with an error and no state."""
    return PartitionDataResponse(partition_index=index, error_code=code, leader_id=0, leader_epoch=0)
